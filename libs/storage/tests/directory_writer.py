"""A process that writes to a directory store until it is killed; started by the directory store's tests.

Each object's bytes repeat its attempt id, so that torn bytes and a record of other bytes are both found out.
"""

import asyncio
import random
import sys
import uuid

from kafscale.storage.objects import IfAbsent, IfMatch, ObjectNotFound, PreconditionFailed
from kafscale.storage.objects.directory import DirectoryStore


async def main(root: str, mode: str, seed: int) -> None:
    store = DirectoryStore(root)
    source = random.Random(seed)
    if mode == "chaos":
        async with asyncio.TaskGroup() as tasks:
            for _ in range(6):
                tasks.create_task(churn(store, source))
    else:
        won = [n for n in range(200) if await create(store, f"ns/race/{n}", source)]
        say(" ".join(map(str, won)))
        await store.close()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def create(store: DirectoryStore, key: str, source: random.Random) -> bool:
    attempt = uuid.uuid4().hex
    try:
        await store.put(key, body(attempt, source), condition=IfAbsent(), metadata={"kfs-attempt": attempt})
    except PreconditionFailed:
        return False
    return True


async def churn(store: DirectoryStore, source: random.Random) -> None:
    """Create, replace and delete a few keys for ever; a line for each turn."""
    while True:
        say("turn")
        key = f"ns/t/{source.randrange(3)}/{source.randrange(5)}.kfs"
        if not await create(store, key, source):
            info = await store.head(key)
            if info is None:
                continue
            attempt = uuid.uuid4().hex
            metadata = {"kfs-attempt": attempt}
            try:
                if source.random() < 0.3:
                    await store.delete(key, if_match=info.etag)
                else:
                    await store.put(
                        key, body(attempt, source), condition=IfMatch(info.etag), metadata=metadata
                    )
            except (PreconditionFailed, ObjectNotFound):
                continue


def body(attempt: str, source: random.Random) -> list[bytes]:
    return [attempt.encode()] * source.randrange(1, 3000)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
