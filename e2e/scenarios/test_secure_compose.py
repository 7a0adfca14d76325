"""compose.secure.yaml and the script behind it; all but the last test need no engine.

Laws: each service takes the settings that the two files give it. Each file that a setting names is made by the script,
in the folder that only this service mounts, and works: services know one another's roles, the listener has the names
of the front doors, and the client's settings trust it. No service can read a CA's key. A second run renews the
certificates and keeps the rest. `make compose-test` runs the containers.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from kafscale.client.security import PasswordLogin, read_security
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.runtime.grpc_identity import GrpcIdentity, PemFiles, dns_name
from kafscale.runtime.settings import ServiceSettings

from e2e.checkers.manifests.environment import SETTINGS
from e2e.harness.cluster import KAFSCALE
from e2e.harness.compose import Compose, require_compose

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "docs" / "certificates.sh"
PLAIN, SECURE = ROOT / "compose.yaml", ROOT / "compose.secure.yaml"
ROLES = ("frontdoor", "produce", "fetch", "coordinator", "admin")
NAMES = ("127.0.0.1", "kafka.example.com")


def read(path: Path) -> dict[str, Any]:
    """With the defaults of the variables."""
    text = re.sub(r"\$\{\w+:?-([^}]*)\}", r"\1", path.read_text())
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def settings_of(role: str) -> ServiceSettings:
    """What the service reads when compose has merged the files, which it does key by key."""
    variables = {
        **read(PLAIN)["services"][role]["environment"],
        **read(SECURE)["services"][role]["environment"],
    }
    kind = SETTINGS[role]
    fields: dict[str, Any] = {
        name.removeprefix("KAFSCALE_").lower(): each for name, each in variables.items()
    }
    unknown = set(fields) - set(kind.model_fields)
    assert unknown == set(), f"{role} has no such settings"
    return kind(**fields)


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("secrets")
    make(folder)
    return folder


def make(folder: Path) -> None:
    subprocess.run(
        [str(SCRIPT), str(folder), *NAMES], env={"PATH": os.environ["PATH"]}, timeout=60, check=True
    )


@pytest.mark.parametrize("role", ROLES)
def test_a_service_takes_its_settings_and_finds_the_files_that_they_name(secrets: Path, role: str) -> None:
    settings = settings_of(role)
    assert settings.authorizer == "acl"
    assert settings.super_users == {"User:admin"}
    paths = [value for value in settings.model_dump().values() if isinstance(value, Path)]
    named = [path for path in paths if path.parts[1] == "secrets"]
    assert len(named) >= 3
    for path in named:
        assert (secrets / role / path.name).is_file(), path
    [mount] = read(SECURE)["services"][role]["volumes"]
    assert mount == f"secrets-{role}:/secrets:ro"


def test_all_clients_log_in_over_tls() -> None:
    settings = settings_of("frontdoor")
    assert isinstance(settings, FrontdoorSettings)
    assert {each.protocol.value for each in settings.securities().values()} == {"SASL_SSL"}


def test_the_container_writes_each_folder_into_the_volume_of_its_reader_alone() -> None:
    services = read(SECURE)["services"]
    mounts = [each.split(":") for each in services["certificates"]["volumes"]]
    assert mounts.pop(0)[:2] == [f"./{SCRIPT.relative_to(ROOT)}", "/certificates.sh"]
    assert sorted(mounts) == sorted(
        [f"secrets-{name}", f"/secrets/{name}"] for name in ("authority", "client", "console", *ROLES)
    )
    assert set(read(SECURE)["volumes"]) == {volume for volume, _ in mounts}
    readers = {name for name, each in services.items() if "secrets-authority" in str(each.get("volumes"))}
    assert readers == {"certificates"}
    assert set(services) - set(read(PLAIN)["services"]) == {"certificates"}


def test_services_know_one_anothers_roles_and_no_certificate_of_a_client_is_one_of_theirs(
    secrets: Path,
) -> None:
    for role in ROLES:
        files = PemFiles(*(secrets / role / name for name in ("tls.crt", "tls.key", "ca.crt")))
        GrpcIdentity(files)
        assert names_in(files.certificate) == {dns_name(role)}
        assert verified(files.certificate, files.ca)
    listener = secrets / "frontdoor" / "clients.crt"
    assert names_in(listener) == set(NAMES)
    assert verified(listener, secrets / "client" / "ca.crt")
    assert not verified(listener, secrets / "frontdoor" / "ca.crt")


def names_in(certificate: Path) -> set[str]:
    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(each.value) for each in names}


def verified(certificate: Path, authority: Path) -> bool:
    command = ["openssl", "verify", "-x509_strict", "-CAfile", str(authority), str(certificate)]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


def test_the_first_user_has_the_settings_of_a_client(secrets: Path) -> None:
    security = read_security(secrets / "client" / "admin.properties")
    user, _, password = (secrets / "admin" / "users").read_text().strip().partition(":")
    assert security.login == PasswordLogin("SCRAM-SHA-512", user, password)
    context = security.context()
    assert isinstance(context, ssl.SSLContext)
    assert context.check_hostname


def test_a_second_run_renews_the_certificates_and_keeps_the_rest(tmp_path: Path) -> None:
    make(tmp_path)
    before = contents(tmp_path)
    make(tmp_path)
    after = contents(tmp_path)
    renewed = {name for name in before if before[name] != after[name]}
    assert before.keys() == after.keys()
    assert renewed == {f"{role}/tls.{end}" for role in ROLES for end in ("crt", "key")} | {
        "frontdoor/clients.crt",
        "frontdoor/clients.key",
    }
    assert [path for path in tmp_path.rglob("*") if path.stat().st_mode & 0o077] == []


def contents(folder: Path) -> Mapping[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.compose
@pytest.mark.timeout(1_200)
def test_in_containers_the_first_user_gets_in_and_nobody_else(tmp_path: Path) -> None:
    require_compose()
    system = Compose(more=(SECURE,))
    try:
        system.up()
        show = ("run", "--rm", "--entrypoint", "cat", "certificates", "/secrets/client/admin.properties")
        admin, guess = tmp_path / "admin.properties", tmp_path / "guess.properties"
        admin.write_text(system.compose(*show))
        guess.write_text(re.sub('password="[^"]*"', 'password="guess"', admin.read_text()))
        assert kafscale(system, "topics create orders", admin).returncode == 0
        listed = kafscale(system, "topics list --output json", admin)
        assert [each["topic"] for each in json.loads(listed.stdout)] == ["orders"]
        assert "Authentication failed" in kafscale(system, "topics list", guess).stderr
        assert "it closed the connection" in kafscale(system, "topics list", Path("/dev/null")).stderr
    finally:
        system.tear_down()


def kafscale(system: Compose, line: str, config: Path) -> subprocess.CompletedProcess[str]:
    options = ["--bootstrap-server", system.bootstrap, "--command-config", str(config)]
    return subprocess.run(
        [*KAFSCALE, *line.split(), *options], capture_output=True, text=True, timeout=120, check=False
    )
