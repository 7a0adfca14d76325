"""Profiles: only their owner can read them, they mean what --command-config means, and they never show a secret."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.access.protocol import SecurityProtocol
from kafscale.cli.__main__ import app
from kafscale.cli.targets import place_of
from kafscale.client.properties import format_jaas, format_properties, parse_jaas, parse_properties
from kafscale.client.security import OPEN, PasswordLogin, read_security
from kafscale.operations.bootstrap import Place
from kafscale.operations.datadir import DataDir, Endpoints
from kafscale.operations.profiles import Profiles
from kafscale.testkit.authority import Authority
from typer.testing import CliRunner, Result

SECRET = 'hu"sh \\ hush; ü\U0001f512'
VARIABLES = (
    "KAFSCALE_BOOTSTRAP_SERVERS",
    "KAFSCALE_COMMAND_CONFIG",
    "KAFSCALE_DATA_DIR",
    "KAFSCALE_PROFILE",
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KAFSCALE_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "config"


def run(*words: str, stdin: str = "") -> Result:
    return CliRunner().invoke(app, words, input=stdin)


def ok(*words: str, stdin: str = "") -> Result:
    done = run(*words, stdin=stdin)
    assert done.exit_code == 0, done.output
    return done


def rows(*words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(ok(*words, "--output", "json").stdout)
    return found


def create(name: str, *more: str, stdin: str = "") -> Result:
    return ok("profile", "create", name, "-b", f"{name}:9092", *more, stdin=stdin)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The place at which a command asks."""
    asked: list[Place] = []

    class Client:
        def __init__(self, bootstrap: str, security: Any) -> None:
            asked.append(Place(bootstrap, security))
            raise SystemExit

    monkeypatch.setattr("kafscale.client.admin_client.Client", Client)

    def of(*words: str, env: Mapping[str, str] | None = None) -> Place:
        CliRunner().invoke(app, words, env=dict(env or {}))
        return asked.pop()

    return of


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(st.dictionaries(TEXT, TEXT, max_size=3))
def test_settings_that_are_written_are_read_as_the_same(settings: dict[str, str]) -> None:
    text = format_properties(settings)
    assert text.isascii()
    assert parse_properties(text) == settings


@given(TEXT, TEXT)
def test_a_login_that_is_written_is_read_as_the_same(user: str, password: str) -> None:
    found = parse_jaas(format_jaas("org.example.Module", {"username": user, "password": password}))
    assert (found.name, found.options) == ("Module", {"username": user, "password": password})


def test_a_profile_is_used_from_its_making_until_another_is(home: Path, place: Any) -> None:
    create("dev")
    assert place("topics", "list").bootstrap == "dev:9092"
    create("prod")
    assert place("topics", "list").bootstrap == "prod:9092"
    create("third", "--no-use")
    assert place("consume", "orders").bootstrap == "prod:9092"
    ok("profile", "use", "dev")
    assert place("topics", "list").bootstrap == "dev:9092"
    assert place("--profile", "third", "topics", "list").bootstrap == "third:9092"
    assert place("topics", "list", env={"KAFSCALE_PROFILE": "third"}).bootstrap == "third:9092"
    assert [(row["profile"], row["in_use"]) for row in rows("profile", "list")] == [
        ("dev", True),
        ("prod", False),
        ("third", False),
    ]
    ok("profile", "leave")
    assert place("topics", "list") == Place("127.0.0.1:9092", OPEN)


def login(password: str = SECRET) -> list[str]:
    Path("password").write_text(f"{password}\n")
    return ["--user", "alice", "--password-file", "password"]


def running_on(root: Path, request: pytest.FixtureRequest) -> None:
    """As if `kafscale up` ran there."""
    data = DataDir(root)
    data.acquire()
    request.addfinalizer(data.release)
    here = Endpoints(bootstrap_servers="here:9092", etcd="unix:///e", namespace="n", object_dir="o", pid=1)
    data.publish(here)


def test_a_login_is_sent_to_no_other_address(
    tmp_path: Path, place: Any, request: pytest.FixtureRequest
) -> None:
    create("prod", *login())
    running_on(tmp_path, request)
    assert place("topics", "list").security.login == PasswordLogin("SCRAM-SHA-512", "alice", SECRET)
    for words, env in (
        (("-b", "other:9092"), {}),
        (("--data-dir", str(tmp_path)), {}),
        ((), {"KAFSCALE_BOOTSTRAP_SERVERS": "other:9092"}),
        ((), {"KAFSCALE_DATA_DIR": str(tmp_path)}),
    ):
        assert place("topics", "list", *words, env=env).security == OPEN
    named = place("--profile", "prod", "topics", "list", "-b", "other:9092")
    assert named.bootstrap == "other:9092"
    assert isinstance(named.security.login, PasswordLogin), "the profile is named on purpose"


@pytest.mark.parametrize(
    ("words", "protocol"),
    [
        ([], SecurityProtocol.PLAINTEXT),
        (["--ca", "ca.crt"], SecurityProtocol.SSL),
        (["--user"], SecurityProtocol.SASL_SSL),
        (["--user", "--security-protocol", "plaintext"], SecurityProtocol.SASL_PLAINTEXT),
        (
            ["--user", "--mechanism", "plain", "--security-protocol", "SASL_PLAINTEXT"],
            SecurityProtocol.SASL_PLAINTEXT,
        ),
        (["--user", "--certificate", "alice.pem"], SecurityProtocol.SASL_SSL),
        (["--certificate", "alice.pem"], SecurityProtocol.SSL),
    ],
)
def test_a_password_travels_encrypted_unless_the_user_says_otherwise(
    words: list[str], protocol: SecurityProtocol, home: Path
) -> None:
    authority = Authority(Path("tls"))
    alice = authority.client("alice")
    Path("ca.crt").write_bytes(authority.ca.read_bytes())
    Path("alice.pem").write_bytes(alice.certificate.read_bytes() + alice.key.read_bytes())
    create("p", *(each for word in words for each in (login() if word == "--user" else [word])))
    security = read_security(home / "profiles" / "p.properties")
    assert (security.protocol, security.bootstrap) == (protocol, "p:9092")
    if security.trust is not None:
        assert security.trust.path == Path("ca.crt").absolute(), "it is found from every folder"


def test_only_the_owner_can_read_it_and_no_output_has_a_secret(home: Path) -> None:
    said = create("prod", *login()).output
    assert stat.S_IMODE((home / "profiles").stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "profiles" / "prod.properties").stat().st_mode) == 0o600
    source = Path("client.properties")
    source.write_text(f"bootstrap.servers=b:1\nssl.key.password={SECRET}\nx.secret={SECRET}\n")
    said += ok("profile", "create", "copied", "--from", str(source)).output
    for words in (("list",), ("show", "prod"), ("show", "copied"), ("delete", "copied")):
        said += ok("profile", *words).output
    assert "hush" not in said
    assert {row["setting"]: row["value"] for row in rows("profile", "show", "prod")} == {
        "bootstrap.servers": "prod:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "(hidden)",
    }


def test_a_profile_that_others_can_read_is_refused(home: Path) -> None:
    create("prod")
    path = home / "profiles" / "prod.properties"
    path.chmod(0o640)
    for words in (("topics", "list"), ("--profile", "prod", "topics", "list"), ("profile", "show", "prod")):
        done = run(*words)
        assert done.exit_code != 0
        assert f"other users can read {path}; run `chmod 600 {path}`" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("profile", "create", "x"), 2, "--bootstrap-server is missing"),
        (("profile", "create", "../x", "-b", "a:1"), 1, "cannot be the name of a profile"),
        (
            ("profile", "create", "there", "-b", "a:1"),
            1,
            "profile 'there' exists already; --force replaces it",
        ),
        (
            ("profile", "create", "x", "-b", "a:1", "--user", "a", "--mechanism", "GSSAPI"),
            2,
            "is not one of PLAIN",
        ),
        (
            ("profile", "create", "x", "-b", "a:1", "--ca", "nowhere.crt"),
            2,
            "the certificates cannot be used",
        ),
        (("profile", "create", "x", "--from", "nowhere"), 2, "--from nowhere: No such file"),
        (
            ("profile", "use", "nix"),
            1,
            "profile 'nix' does not exist; `kafscale profile list` shows what does",
        ),
        (("profile", "delete", "nix"), 1, "profile 'nix' does not exist"),
        (("--profile", "nix", "topics", "list"), 2, "profile 'nix' does not exist"),
        (("--profile", "there", "topics", "list", "--command-config", "f"), 2, "give one"),
        (("--profile", "there", "status"), 2, "`kafscale status` does not use the Kafka protocol"),
    ],
)
def test_what_is_wrong_is_a_sentence(words: tuple[str, ...], code: int, sentence: str) -> None:
    create("there", "--no-use")
    done = run(*words)
    assert (done.exit_code, done.stdout) == (code, "")
    assert sentence in done.stderr


def test_a_profile_in_use_that_is_gone_is_named(home: Path) -> None:
    create("prod")
    (home / "profiles" / "prod.properties").unlink()
    done = run("topics", "list")
    assert done.exit_code == 2
    assert "profile 'prod' does not exist" in done.stderr
    assert "`kafscale profile leave` ends that" in done.stderr


def test_one_that_is_deleted_is_not_in_use_any_more_and_one_can_be_replaced(home: Path) -> None:
    create("prod")
    create("prod", "--force", "--security-protocol", "SSL")
    assert rows("profile", "list")[0]["security_protocol"] == "SSL"
    ok("profile", "delete", "prod")
    assert Profiles(home).current() is None
    assert rows("profile", "list") == []
    assert place_of(None, None, None) == Place("127.0.0.1:9092", OPEN)
    assert sorted(path.name for path in home.rglob("*")) == ["profiles"], "no temporary file is left"
