"""Which etcd runs the data of a directory, with real ones: Debian's 3.4, and a newer one."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafscale.operations.datadir import DataDir, started_etcd
from kafscale.runtime.etcd_program import EtcdMissing, version_of
from kafscale.storage.etcd.client import EtcdClient
from kafscale.testkit.etcd import etcd_program, newer_etcd_program


@pytest.fixture
def old_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with an older etcd, on a machine from which nothing can be fetched."""
    program = etcd_program()
    older, newer = version_of(program), version_of(newer_etcd_program())
    assert older is not None
    assert newer is not None
    if older.version[:2] == newer.version[:2]:
        pytest.skip("the etcd on PATH is as new as the other one")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "etcd").symlink_to(program)
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    """As a newer etcd leaves it, which an earlier KafScale fetched because Debian's could not be."""
    data = DataDir(tmp_path / "data")
    data.acquire()
    fetched = data.tools / "etcd-pypi" / "etcd"
    fetched.parent.mkdir(parents=True)
    fetched.symlink_to(newer_etcd_program())
    return data


async def served(data: DataDir, key: bytes, *, put: bytes = b"") -> bytes | None:
    """The value of the key, which the etcd of the directory returns."""
    async with started_etcd(data, lambda line: None) as server:
        client = EtcdClient.connect([server.endpoint])
        if put:
            await client.put(key, put)
        kv = await client.get(key)
        await client.close()
        return None if kv is None else kv.value


async def newer_ran(data: DataDir, on_path: Path) -> None:
    """The newer etcd was on PATH for a while, and put a key."""
    older = (on_path / "etcd").rename(on_path / "not-yet")
    (on_path / "etcd").symlink_to(newer_etcd_program())
    assert await served(data, b"a", put=b"1") == b"1"
    (on_path / "etcd").unlink()
    older.rename(on_path / "etcd")


async def test_data_that_a_newer_etcd_ran_is_served_with_an_older_one_on_path(
    data: DataDir, old_on_path: Path
) -> None:
    await newer_ran(data, old_on_path)
    assert await served(data, b"a") == b"1"


async def test_data_of_a_version_that_did_not_write_down_what_ran_it_is_served(
    data: DataDir, old_on_path: Path
) -> None:
    await newer_ran(data, old_on_path)
    (data.root / "etcd.json").unlink()
    assert await served(data, b"a") == b"1", "etcd says what it needs"
    ran = data.etcd_ran()
    assert ran is not None, "the next start does not have to ask"
    assert ran.version >= (3, 5, 0)


async def test_without_an_etcd_that_can_read_the_data_one_sentence_says_which_one_is_needed(
    data: DataDir, old_on_path: Path
) -> None:
    await newer_ran(data, old_on_path)
    (data.tools / "etcd-pypi" / "etcd").unlink()
    for _ in range(2):
        with pytest.raises(
            EtcdMissing, match=r"last run by etcd 3\.\d+\.\d+.*put etcd 3\.\d+ on PATH.*it is 3\.4"
        ):
            await served(data, b"a")
        (data.root / "etcd.json").unlink(missing_ok=True)  # the second time, etcd itself says it


async def test_new_data_does_not_ask_what_ran_the_old(data: DataDir, old_on_path: Path) -> None:
    """As after the loss of etcd, when its folder is removed and the heads are recovered from the bucket."""
    await newer_ran(data, old_on_path)
    (data.etcd / "member").rename(data.root / "lost")
    assert await served(data, b"a") is None
    ran = data.etcd_ran()
    assert ran is not None
    assert ran.program == old_on_path / "etcd"
