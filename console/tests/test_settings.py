"""Who may start the console how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafscale.console.logins import Mode
from kafscale.console.settings import ConsoleSettings, mistake

PEM = Path("c.pem")
TLS = {"certificate": PEM, "key": PEM}
PROXY = {"behind_proxy": "https://console.example.com"}
PROFILE = {"read_only": True, "everyone_acts_as_profile": True}


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("listen", ["127.0.0.1", "localhost", "::1"])
def test_on_loopback_every_cluster_is_shown(mode: Mode, listen: str) -> None:
    assert mistake(ConsoleSettings(listen=listen), mode) is None


@pytest.mark.parametrize(
    ("mode", "given", "starts"),
    [
        (Mode.OPEN, TLS | PROFILE, False),
        (Mode.OPEN, PROXY, False),
        (Mode.OPEN, {"behind_proxy": "http://127.0.0.1:8480"}, True),
        (Mode.OPEN, {"behind_proxy": "http://127.0.0.1.example.com:8480"}, False),
        (Mode.PERSONAL, {}, False),
        (Mode.PERSONAL, {"behind_proxy": "http://console.example.com"}, False),
        (Mode.PERSONAL, TLS, True),
        (Mode.PERSONAL, PROXY, True),
        (Mode.FIXED, TLS, False),
        (Mode.FIXED, TLS | {"read_only": True}, False),
        (Mode.FIXED, PROFILE, False),
        (Mode.FIXED, TLS | PROFILE, True),
        (Mode.FIXED, PROXY | PROFILE, True),
    ],
)
@pytest.mark.parametrize("listen", ["0.0.0.0", "::", "10.0.0.7"])
def test_on_other_addresses_it_needs_logins_and_encryption(
    mode: Mode, given: dict[str, Any], starts: bool, listen: str
) -> None:
    assert (mistake(ConsoleSettings(listen=listen, **given), mode) is None) is starts


@pytest.mark.parametrize(
    "url", ["console.example.com", "https://", "https://x/path", "https://u@x", "ftp://x", "https://x:0"]
)
def test_a_proxy_s_address_is_an_origin(url: str) -> None:
    assert mistake(ConsoleSettings(behind_proxy=url), Mode.OPEN) is not None


def test_a_certificate_needs_its_key() -> None:
    assert mistake(ConsoleSettings(certificate=PEM), Mode.OPEN) is not None
    assert mistake(ConsoleSettings(key=PEM), Mode.OPEN) is not None


@pytest.mark.parametrize(
    ("given", "starts"),
    [
        ({"schema_registry": "http://registry:8081"}, True),
        ({"schema_registry": "https://registry/apis/ccompat/v7", "schema_registry_login": PEM}, True),
        ({"schema_registry": "registry:8081"}, False),
        ({"schema_registry": "file:///etc/passwd"}, False),
        ({"schema_registry": "http://user:secret@registry"}, False),
        ({"schema_registry": "http://registry?x=1"}, False),
        ({"schema_registry": "http://["}, False),
        ({"schema_registry_login": PEM}, False),
    ],
)
def test_a_registry_has_an_address_and_its_login_is_not_in_it(given: dict[str, Any], starts: bool) -> None:
    assert (mistake(ConsoleSettings(**given), Mode.OPEN) is None) is starts
