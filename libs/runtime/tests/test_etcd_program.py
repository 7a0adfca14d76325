"""Finding etcd on a machine with or without it, for new data and for data that another etcd ran."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kafscale.runtime.etcd_program import EtcdMissing, Ran, Version, find_etcd, read_ran, write_ran

FAKE_ETCD = "#!/bin/sh\necho etcd Version: 9.9.9\n"
DEBIAN, NEWER = "3.4.23", "3.5.1"


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def bare_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing in it but what the test puts there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def fake_debian(folder: Path, status: int = 0) -> None:
    script(
        folder / "apt-get", f"#!/bin/sh\n: > etcd-server_3.4_amd64.deb\necho no network >&2\nexit {status}\n"
    )
    unpack = f"#!{sys.executable}\nimport pathlib\n" + (
        "p = pathlib.Path('unpacked/usr/bin/etcd')\np.parent.mkdir(parents=True)\n"
        f"p.write_text({FAKE_ETCD!r})\n"
    )
    script(folder / "dpkg-deb", unpack)


def test_the_one_on_path_is_taken_without_a_word(bare_path: Path, tmp_path: Path) -> None:
    program = script(bare_path / "etcd", FAKE_ETCD)
    said: list[str] = []
    assert find_etcd(tmp_path / "tools", said.append) == program
    assert said == []
    assert not (tmp_path / "tools").exists()


def test_without_it_debians_package_is_unpacked_once(bare_path: Path, tmp_path: Path) -> None:
    fake_debian(bare_path)
    said: list[str] = []
    program = find_etcd(tmp_path / "tools", said.append)
    assert program == tmp_path / "tools" / "etcd-debian" / "etcd"
    assert subprocess.run([program], capture_output=True, check=True).stdout == b"etcd Version: 9.9.9\n"
    assert len(said) == 1
    (bare_path / "apt-get").unlink()
    assert find_etcd(tmp_path / "tools", said.append) == program
    assert len(said) == 1, "the second time it is there"
    assert [p.name for p in (tmp_path / "tools").iterdir()] == ["etcd-debian"], "nothing half-made is left"


def test_without_both_the_sentence_says_what_to_install_and_what_was_tried(
    bare_path: Path, tmp_path: Path
) -> None:
    fake_debian(bare_path, status=1)
    with pytest.raises(
        EtcdMissing,
        match=r"not 3\.5\.0 to 3\.5\.2.*apt-get install etcd-server.*Debian's package: .*no network",
    ):
        find_etcd(tmp_path / "tools", lambda line: None)
    assert list((tmp_path / "tools").iterdir()) == []


def test_on_a_machine_without_apt_the_sentence_says_what_to_put_on_path(
    bare_path: Path, tmp_path: Path
) -> None:
    with pytest.raises(EtcdMissing, match=r"put it on PATH.*apt-get or dpkg-deb is missing"):
        find_etcd(tmp_path / "tools", lambda line: None)


def printing(path: Path, version: str) -> Path:
    return script(path, f"#!/bin/sh\necho etcd Version: {version}\n")


@pytest.fixture
def tools(bare_path: Path, tmp_path: Path) -> Path:
    """With Debian's, and a newer one that an earlier KafScale fetched."""
    printing(tmp_path / "tools" / "etcd-debian" / "etcd", DEBIAN)
    printing(tmp_path / "tools" / "etcd-pypi" / "etcd", NEWER)
    return tmp_path / "tools"


@pytest.mark.parametrize(
    ("ran", "on_path", "found"),
    [
        ((3, 5, 1), None, "pypi"),
        ((3, 4, 23), None, "debian"),
        ((3, 5, 1), "3.4.23", "pypi"),
        ((3, 5, 1), "3.5.0", "pypi"),
        ((3, 5, 1), "3.5.9", "path"),
        ((3, 5, 1), "3.6.1", "path"),
        ((3, 4, 23), "3.6.1", "debian"),
        ((3, 5, 1), "4.0.0", "pypi"),
        ((3, 5, 1), "development", "pypi"),
    ],
)
def test_data_is_run_by_what_ran_it_or_by_a_newer_program_on_path(
    bare_path: Path, tools: Path, ran: Version, on_path: str | None, found: str
) -> None:
    """etcd refuses to go back by a minor version, and does not promise to skip one."""
    programs = {name: tools / f"etcd-{name}" / "etcd" for name in ("debian", "pypi")}
    if on_path is not None:
        programs["path"] = printing(bare_path / "etcd", on_path)
    last = Ran(program=programs["pypi" if ran == (3, 5, 1) else "debian"], version=ran)
    assert find_etcd(tools, lambda line: None, last) == programs[found]


def test_a_program_elsewhere_that_ran_the_data_runs_it_again(
    bare_path: Path, tools: Path, tmp_path: Path
) -> None:
    """For example that of an environment which was active then."""
    elsewhere = printing(tmp_path / "env" / "etcd", "3.6.1")
    last = Ran(program=elsewhere, version=(3, 6, 1))
    assert find_etcd(tools, lambda line: None, last) == elsewhere
    elsewhere.unlink()
    with pytest.raises(EtcdMissing, match=r"last run by etcd 3\.6\.1.*put etcd 3\.6 on PATH.*it is 3\.4\.23"):
        find_etcd(tools, lambda line: None, last)


def test_without_the_program_that_ran_the_data_one_that_can_read_it_is_fetched(
    bare_path: Path, tmp_path: Path
) -> None:
    fake_debian(bare_path)
    printing(bare_path / "etcd", "9.8.7")
    said: list[str] = []
    program = find_etcd(tmp_path / "tools", said.append, Ran(program=tmp_path / "gone", version=(9, 9, 0)))
    assert program == tmp_path / "tools" / "etcd-debian" / "etcd"
    assert said[0].startswith("the data needs etcd 9.9.0; fetching Debian's")


def test_data_finds_a_program_that_was_fetched_before_whatever_its_source(
    tools: Path, tmp_path: Path
) -> None:
    last = Ran(program=tmp_path / "gone", version=(3, 5, 1))
    assert find_etcd(tools, lambda line: None, last) == tools / "etcd-pypi" / "etcd"


def test_what_ran_the_data_is_read_back_and_damage_is_as_if_nothing_were_known(tmp_path: Path) -> None:
    file, ran = tmp_path / "etcd.json", Ran(program=tmp_path / "etcd", version=(3, 5, 1))
    assert read_ran(file) is None
    write_ran(file, ran)
    assert read_ran(file) == ran
    for damaged in (
        "",
        "[]",
        "{",
        '{"version": "3.5"}',
        '{"version": "3.5", "program": "x"}',
        '{"version": 3}',
    ):
        file.write_text(damaged)
        assert read_ran(file) is None
