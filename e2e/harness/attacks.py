"""Attacks of one client on a cluster. Each is one function and runs in a separate process.

`python -m e2e.harness.attacks NAME BOOTSTRAP PROBES` sets the attack up, says `ready`, waits for a line, attacks, and
says what it saw as one line of JSON. Nothing here is a trick: each request is one that a parser takes.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from kafscale.testkit.plain_records import plain_batch, plain_record
from kafscale.wire.batches import RECORDS_MAX
from kafscale.wire.compression import Codec, compress
from kafscale.wire.headers import encode_request_header
from kafscale.wire.records import Record, build_batch
from kafscale.wire.schema import (
    create_topics,
    describe_configs,
    describe_groups,
    join_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    sync_group,
)

from e2e.harness.raw import Closed, Raw
from e2e.harness.requests import (
    FETCH_V,
    LIST_V,
    METADATA_V,
    PRODUCE_V,
    TOPIC,
    ask,
    ask_list_offsets,
    ask_produce,
    fetch_body,
    produce_body,
    send,
)
from e2e.harness.services import until

MIB: Final = 1 << 20
FRAME: Final = 100 * MIB
HOLD_S: Final = 8.0
"""How long an attack that only holds something goes on."""
SEND_TIMEOUT_S: Final = 0.5
ANSWER_S: Final = 25.0
"""How long an attack waits for the answer to its request; the bystander is watched meanwhile."""
WIDE: Final = "wide"
WIDE_PARTITIONS: Final = 10_000
COMMITTED: Final = 4_000
Outcome = dict[str, int]
Attack = Callable[[], Outcome]


@dataclass(frozen=True, slots=True)
class Target:
    bootstrap: str
    probes: str

    def raw(self) -> Raw:
        return Raw.to(self.bootstrap)

    def connect(self, timeout_s: float) -> socket.socket:
        host, port = self.bootstrap.rsplit(":", 1)
        opened = socket.create_connection((host, int(port)), 30)
        opened.settimeout(timeout_s)
        return opened


# ---- half frames


def half_frames(target: Target, *, connections: int, size: int, nudge: bool = False) -> Attack:
    """Each connection announces 100 MiB, sends `size` bytes of it, and keeps still."""
    data = struct.pack(">i", FRAME) + bytes(size - 4)

    def attack() -> Outcome:
        with ExitStack() as stack:
            held = [stack.enter_context(target.connect(SEND_TIMEOUT_S)) for _ in range(connections)]
            for one in held:
                _push(one, data)
            if nudge:
                for one in held:
                    _push(one, b"\0")
            time.sleep(HOLD_S)
        return {"connections": connections}

    return attack


def _push(one: socket.socket, data: bytes) -> None:
    """As much as the server takes. It may close: that is its good right."""
    with suppress(OSError):
        one.sendall(data)


def honest_and_slow(target: Target) -> Attack:
    """Six whole requests of 90 MB, each with a pause in the middle, as over a slow link. Each must be answered."""
    body = produce_body((TOPIC, 1, bytes(90 * MIB)), timeout_ms=60_000)
    payload = encode_request_header(0, PRODUCE_V, 1, "slow") + body
    frame = struct.pack(">i", len(payload)) + payload
    answered: list[int] = []

    def one() -> None:
        with target.raw() as raw:
            raw.socket.settimeout(120)
            raw.socket.sendall(memoryview(frame)[: 17 * MIB])
            time.sleep(HOLD_S / 2)
            raw.socket.sendall(memoryview(frame)[17 * MIB :])
            answered.append(len(raw.answer()))

    def attack() -> Outcome:
        _together(one, 6)
        return {"answered": len(answered)}

    return attack


def _together(work: Callable[[], None], count: int) -> None:
    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# ---- answers


def unread_answers(target: Target) -> Attack:
    """A hundred large fetches at once on one connection that reads nothing."""
    record = Record(timestamp=1, value=os.urandom(900_000))
    make_topic(target, "big")
    with target.raw() as raw:
        for _ in range(24):
            assert send(raw, build_batch([record]), topic="big") == 0

    def attack() -> Outcome:
        body = [fetch_body(topic="big", max_bytes=50 * MIB, part_bytes=50 * MIB)]
        with target.raw() as raw:
            raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            for _ in range(100):
                raw.request(1, FETCH_V, body)
            time.sleep(HOLD_S)
        return {}

    return attack


def metadata_of_one_topic(target: Target) -> Attack:
    make_topic(target, WIDE, WIDE_PARTITIONS)
    topics = [metadata.MetadataRequestTopic(name=WIDE)] * 400
    message = metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    return one_request(target, 3, METADATA_V, b"".join(metadata.encode_request(message, METADATA_V)))


def configs_of_one_topic(target: Target) -> Attack:
    wanted = describe_configs.DescribeConfigsRequestResource(
        resource_type=2, resource_name=TOPIC, configuration_keys=None
    )
    message = describe_configs.DescribeConfigsRequest(
        resources=[wanted] * 131_000, include_synonyms=True, include_documentation=True
    )
    return one_request(target, 32, 4, b"".join(describe_configs.encode_request(message, 4)))


def offsets_of_one_group(target: Target) -> Attack:
    make_topic(target, WIDE, WIDE_PARTITIONS)
    with target.raw() as raw:
        assert commit_wide(raw, "named-often") == {0}
    wanted = offset_fetch.OffsetFetchRequestGroup(group_id="named-often", topics=None)
    message = offset_fetch.OffsetFetchRequest(groups=[wanted] * 24)
    return one_request(target, 9, 8, b"".join(offset_fetch.encode_request(message, 8)))


def descriptions_of_one_group(target: Target) -> Attack:
    """Of a group with a member of 200 KiB, which is shown while the group is stable."""
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=bytes(200 << 10))
    join = join_group.JoinGroupRequest(
        group_id="described",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    with target.raw() as raw:
        found = ask(raw, join_group, 3, join)
        sync = sync_group.SyncGroupRequest(
            group_id="described", generation_id=found.generation_id, member_id=found.member_id
        )
        assert ask(raw, sync_group, 2, sync).error_code == 0
    message = describe_groups.DescribeGroupsRequest(groups=["described"] * 5_000)
    return one_request(target, 15, 4, b"".join(describe_groups.encode_request(message, 4)))


def one_request(target: Target, key: int, version: int, body: bytes) -> Attack:
    """Waits for its answer, whatever that is, and reads it."""

    def attack() -> Outcome:
        with target.raw() as raw:
            raw.socket.settimeout(ANSWER_S)
            raw.request(key, version, [body])
            try:
                return {"answer_bytes": len(raw.answer())}
            except (Closed, TimeoutError):
                return {"answer_bytes": -1}

    return attack


# ---- work


def auto_created_topics(target: Target) -> Attack:
    names = [metadata.MetadataRequestTopic(name=f"auto-{n}") for n in range(2_000)]
    message = metadata.MetadataRequest(topics=names, allow_auto_topic_creation=True)
    return one_request(target, 3, METADATA_V, b"".join(metadata.encode_request(message, METADATA_V)))


def soon_ms() -> int:
    """Half an hour ahead: as late as a topic takes, with time to spare."""
    return int(time.time() * 1000) + 1_800_000


def bomb(newest_ms: int) -> bytes:
    """A small batch of a million records. All of it is sound."""
    records = compress(Codec.ZSTD, b"".join(map(plain_record, range(RECORDS_MAX))))
    return plain_batch(records, RECORDS_MAX, base_ms=newest_ms, attributes=int(Codec.ZSTD))


def bombs_by_time(target: Target) -> Attack:
    """A batch of a million records, and one question for the time that all of them have."""
    make_topic(target, "bombs")
    newest_ms = soon_ms()
    with target.raw() as raw:
        raw.socket.settimeout(ANSWER_S)
        answer = ask_produce(raw, produce_body(("bombs", 0, bomb(newest_ms))))
        assert [part.error_code for part in answer] == [0]
    wanted = list_offsets.ListOffsetsRequestPartition(partition_index=0, timestamp=newest_ms)
    message = list_offsets.ListOffsetsRequest(
        replica_id=-1, topics=[list_offsets.ListOffsetsRequestTopic(name="bombs", partitions=[wanted])]
    )
    return one_request(target, 2, LIST_V, b"".join(list_offsets.encode_request(message, LIST_V)))


def bombs(target: Target, policy: str) -> Attack:
    """Records are read before they are accepted: four batches of a million records each."""
    make_topic(target, policy, configs={"cleanup.policy": policy})
    body = produce_body((policy, 0, bomb(soon_ms())))
    codes: list[int] = []

    def one() -> None:
        with target.raw() as raw:
            raw.socket.settimeout(ANSWER_S)
            try:
                codes.extend(part.error_code for part in ask_produce(raw, body))
            except (Closed, TimeoutError):
                codes.append(-1)

    def attack() -> Outcome:
        _together(one, 4)
        return {"answers": len(codes), "taken": codes.count(0)}

    return attack


def offset_commits(target: Target) -> Attack:
    """Offsets with 4 KiB of metadata each, for groups without members."""
    make_topic(target, WIDE, WIDE_PARTITIONS)

    def attack() -> Outcome:
        with target.raw() as raw:
            for number in range(4):
                commit_wide(raw, f"flood-{number}")
        return {}

    return attack


def commit_wide(raw: Raw, group: str) -> set[int]:
    """16 MB of offsets; the codes that came back."""
    partitions = [
        offset_commit.OffsetCommitRequestPartition(
            partition_index=n, committed_offset=1, committed_leader_epoch=-1, committed_metadata="m" * 4_096
        )
        for n in range(COMMITTED)
    ]
    message = offset_commit.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[offset_commit.OffsetCommitRequestTopic(name=WIDE, partitions=partitions)],
    )
    answer = ask(raw, offset_commit, 7, message)
    return {part.error_code for topic in answer.topics for part in topic.partitions}


def slow_probes(target: Target) -> Attack:
    """As many slow connections as the server takes probes at a time, and one real probe."""
    host, port = target.probes.rsplit(":", 1)

    def attack() -> Outcome:
        good = 0
        with ExitStack() as stack:
            for _ in range(3):
                for _ in range(64):
                    slow = stack.enter_context(socket.create_connection((host, int(port)), 5))
                    _push(slow, b"GET /li")
                good += _is_live(host, int(port))
        return {"probes": good}

    return attack


def _is_live(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), 5) as probe:
            probe.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            return b" 200 " in probe.recv(200)
    except OSError:
        return False


def make_topic(
    target: Target, name: str, partitions: int = 1, *, configs: dict[str, str] | None = None
) -> None:
    """Unless it is there; ready to take records and to be named."""
    entries = [
        create_topics.CreateTopicsRequestTopicConfig(name=k, value=v) for k, v in (configs or {}).items()
    ]
    topic = create_topics.CreateTopicsRequestTopic(
        name=name, num_partitions=partitions, replication_factor=-1, configs=entries
    )
    message = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    with target.raw() as raw:
        made = ask(raw, create_topics, 5, message).topics[0].error_code
        assert made in (0, 36), f"{name} was not created: {made}"
        until(f"{name} is there", lambda: ask_list_offsets(raw, -1, topic=name)[0] == 0)


ATTACKS: Final[dict[str, Callable[[Target], Attack]]] = {
    "five bytes of a frame": lambda t: half_frames(t, connections=4_300, size=5),
    "five bytes and then one more": lambda t: half_frames(t, connections=4_300, size=5, nudge=True),
    "64 KiB of a frame": lambda t: half_frames(t, connections=300, size=65_600),
    "a quarter of a frame": lambda t: half_frames(t, connections=12, size=27 * MIB),
    "honest and slow": honest_and_slow,
    "unread answers": unread_answers,
    "metadata of one topic": metadata_of_one_topic,
    "configs of one topic": configs_of_one_topic,
    "offsets of one group": offsets_of_one_group,
    "descriptions of one group": descriptions_of_one_group,
    "auto-created topics": auto_created_topics,
    "bombs by time": bombs_by_time,
    "bombs for a topic": partial(bombs, policy="delete"),
    "bombs for a compacted topic": partial(bombs, policy="compact"),
    "offset commits": offset_commits,
    "slow probes": slow_probes,
}


def main(name: str, bootstrap: str, probes: str) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    attack = ATTACKS[name](Target(bootstrap, probes))
    say("ready")
    sys.stdin.readline()
    say(json.dumps(attack()))


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
