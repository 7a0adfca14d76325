"""Settings: the documents' variables, flags of the same names, and a sentence for each mistake."""

import os
from pathlib import Path

import pytest
from kafscale.runtime.dependencies import connect_etcd, open_object_store, store_config
from kafscale.runtime.settings import ServiceSettings
from kafscale.runtime.settings_load import BadSettings, load_settings, parse_flags, read_settings
from kafscale.storage.objects import S3Config, S3Encryption
from kafscale.storage.rights.objects import StoreUse


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in tuple(os.environ):
        if name.startswith("KAFSCALE_"):
            monkeypatch.delenv(name)


def test_the_documented_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFSCALE_ETCD_ENDPOINTS", "http://a:1, https://b:2,")
    monkeypatch.setenv("KAFSCALE_S3_BUCKET", "records")
    monkeypatch.setenv("KAFSCALE_SEGMENT_BYTES", "8388608")
    monkeypatch.setenv("KAFSCALE_FLUSH_INTERVAL_MS", "100")
    monkeypatch.setenv("KAFSCALE_READAHEAD_SEGMENTS", "5")
    settings = read_settings(ServiceSettings)
    assert settings.etcd_endpoints == ("http://a:1", "https://b:2")
    assert settings.s3_bucket == "records"
    assert (settings.segment_bytes, settings.flush_interval_ms) == (8388608, 100)
    assert settings.readahead_segments == 5
    assert [x.target for x in connect_etcd(settings).access.endpoints] == ["a:1", "b:2"]


@pytest.mark.parametrize(
    ("variables", "kind"),
    [
        ({}, "s3"),
        ({"OBJECT_DIR": "/data"}, "dir"),
        ({"USE_MEMORY_S3": "1"}, "memory"),
        ({"USE_MEMORY_S3": "1", "OBJECT_DIR": "/data"}, "memory"),
        ({"USE_MEMORY_S3": "1", "OBJECT_STORE": "s3"}, "s3"),
    ],
)
def test_the_object_store_follows_from_what_is_given(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], kind: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"KAFSCALE_{name}", value)
    assert read_settings(ServiceSettings).object_store_kind == kind


def test_a_directory_store_needs_its_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFSCALE_OBJECT_STORE", "dir")
    with pytest.raises(BadSettings, match="KAFSCALE_OBJECT_DIR"):
        read_settings(ServiceSettings)


def test_a_flag_wins_over_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFSCALE_RACK", "from-environment")
    flags = parse_flags(ServiceSettings, ["--rack", "from-flag", "--etcd-endpoints", "x:1,y:2"])
    settings = read_settings(ServiceSettings, flags)
    assert settings.rack == "from-flag"
    assert settings.etcd_endpoints == ("x:1", "y:2")


def test_etcd_may_be_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFSCALE_ETCD_ENDPOINTS", "unix:///run/etcd/client:0")
    assert read_settings(ServiceSettings).etcd_endpoints == ("unix:///run/etcd/client:0",)
    monkeypatch.setenv("KAFSCALE_ETCD_ENDPOINTS", "unix://relative")
    with pytest.raises(BadSettings, match="is not http://host:port .* not unix:///path"):
        read_settings(ServiceSettings)


def test_each_mistake_is_one_sentence_that_names_its_variable_and_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAFSCALE_CACHE_BYTES", "plenty")
    monkeypatch.setenv("KAFSCALE_LOG_LEVEL", "loud")
    monkeypatch.setenv("KAFSCALE_NAMESPACE", "Bad Name!")
    monkeypatch.setenv("KAFSCALE_GRPC_LISTEN", "somewhere")
    monkeypatch.setenv("KAFSCALE_ETCD_ENDPOINTS", "ftp://nowhere")
    with pytest.raises(SystemExit) as ended:
        load_settings(ServiceSettings, [])
    assert ended.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5
    for variable, value in (
        ("CACHE_BYTES", "plenty"),
        ("LOG_LEVEL", "loud"),
        ("NAMESPACE", "Bad Name!"),
        ("GRPC_LISTEN", "somewhere"),
        ("ETCD_ENDPOINTS", "ftp://nowhere"),
    ):
        assert any(line.startswith(f"KAFSCALE_{variable}=") and value in line for line in lines), lines


def test_a_secret_is_never_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFSCALE_S3_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("KAFSCALE_S3_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("KAFSCALE_ETCD_USER", "root")
    monkeypatch.setenv("KAFSCALE_ETCD_PASSWORD", "quiet")
    settings = read_settings(ServiceSettings)
    assert "hush" not in repr(settings)
    assert "quiet" not in repr(settings)
    s3 = store_config(settings).s3
    assert isinstance(s3, S3Config)
    assert s3.secret_access_key == "hush"
    assert "hush" not in repr(s3)


@pytest.mark.parametrize(
    "given", [{"USER"}, {"PASSWORD"}, {"PASSWORD_FILE"}, {"USER", "PASSWORD", "PASSWORD_FILE"}]
)
def test_an_etcd_user_has_one_password(given: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in given:
        monkeypatch.setenv(f"KAFSCALE_ETCD_{name}", "x")
    with pytest.raises(BadSettings, match="KAFSCALE_ETCD_USER needs KAFSCALE_ETCD_PASSWORD_FILE or"):
        read_settings(ServiceSettings)


def test_principals_are_separated_by_semicolons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of certificates contain commas."""
    assert read_settings(ServiceSettings).super_users == frozenset()
    monkeypatch.setenv("KAFSCALE_SUPER_USERS", "User:admin; User:CN=ops,O=kafscale;")
    assert read_settings(ServiceSettings).super_users == {"User:admin", "User:CN=ops,O=kafscale"}
    monkeypatch.setenv("KAFSCALE_SUPER_USERS", "admin")
    with pytest.raises(BadSettings, match="KAFSCALE_SUPER_USERS='admin': .*principalType:principalName"):
        read_settings(ServiceSettings)


def test_an_authorizer_is_chosen_and_none_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_settings(ServiceSettings).authorizer == "none"
    monkeypatch.setenv("KAFSCALE_AUTHORIZER", "acl")
    assert read_settings(ServiceSettings).authorizer == "acl"
    monkeypatch.setenv("KAFSCALE_AUTHORIZER", "acls")
    with pytest.raises(BadSettings, match="KAFSCALE_AUTHORIZER='acls'"):
        read_settings(ServiceSettings)


def test_the_password_of_etcd_comes_from_its_file_at_each_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "password"
    monkeypatch.setenv("KAFSCALE_ETCD_USER", "me")
    monkeypatch.setenv("KAFSCALE_ETCD_PASSWORD_FILE", str(file))
    access = connect_etcd(read_settings(ServiceSettings)).access
    for password in ("old", "new"):
        file.write_text(password)
        assert (access.user, access.passwords.to_try()) == ("me", (password,))


def test_a_certificate_for_etcd_that_cannot_be_read_is_said_before_the_first_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFSCALE_ETCD_CA", str(tmp_path / "absent.pem"))
    with pytest.raises(FileNotFoundError, match="absent.pem"):
        connect_etcd(read_settings(ServiceSettings))


@pytest.mark.parametrize("name", ["etcd-password", "s3-secret-access-key", "redis-url"])
def test_a_secret_has_no_flag(name: str) -> None:
    """Every user of a machine can read the arguments of processes."""
    with pytest.raises(SystemExit):
        parse_flags(ServiceSettings, [f"--{name}", "hush"])


@pytest.mark.parametrize("use", list(StoreUse))
def test_only_a_process_that_changes_objects_probes_with_writes(use: StoreUse) -> None:
    s3 = store_config(read_settings(ServiceSettings), use).s3
    assert s3 is not None
    assert s3.probe_writes is (use is StoreUse.CHANGE)


@pytest.mark.parametrize("given", [{"CERTIFICATE"}, {"CERTIFICATE", "KEY"}, {"CA"}, {"KEY", "CA"}])
def test_a_certificate_without_its_key_and_ca_is_a_mistake(
    given: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in given:
        monkeypatch.setenv(f"KAFSCALE_GRPC_{name}", "/file.pem")
    with pytest.raises(BadSettings, match="KAFSCALE_GRPC_KEY and KAFSCALE_GRPC_CA are given together"):
        read_settings(ServiceSettings)


def test_encryption_at_rest_reaches_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> S3Encryption | None:
        s3 = store_config(read_settings(ServiceSettings)).s3
        assert s3 is not None
        return s3.encryption

    assert found() is None
    monkeypatch.setenv("KAFSCALE_S3_SSE", "AES256")
    assert found() == S3Encryption(kind="AES256")
    monkeypatch.setenv("KAFSCALE_S3_SSE_KMS_KEY_ID", "alias/logs")
    with pytest.raises(BadSettings, match="KAFSCALE_S3_SSE_KMS_KEY_ID needs KAFSCALE_S3_SSE=aws:kms"):
        found()
    monkeypatch.setenv("KAFSCALE_S3_SSE", "aws:kms")
    assert found() == S3Encryption(kind="aws:kms", kms_key_id="alias/logs")


def test_settings_are_values_that_do_not_change() -> None:
    settings = read_settings(ServiceSettings)
    with pytest.raises(ValueError, match="frozen"):
        settings.rack = "other"  # type: ignore[misc]


async def test_the_memory_store_of_the_settings_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFSCALE_USE_MEMORY_S3", "true")
    monkeypatch.setenv("KAFSCALE_OBJECT_DIR", str(tmp_path))
    store = open_object_store(read_settings(ServiceSettings))
    await store.probe()
    await store.put("a", (b"b",))
    assert await store.get("a") == b"b"
    await store.close()


def test_a_password_inside_a_url_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFSCALE_GRPC_LISTEN", "tcp://me:hunter2@nowhere")
    with pytest.raises(BadSettings) as bad:
        read_settings(ServiceSettings)
    assert "hunter2" not in str(bad.value)
