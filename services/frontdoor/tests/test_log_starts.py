"""Who has deleted records through this front door does not see them again through it."""

from door_harness import NODES, Cluster, settled, split_over_two
from kafscale.frontdoor.api import Backend
from kafscale.wire.schema import delete_records, list_offsets

DELETE_RECORDS, LIST_OFFSETS = 21, 2
V = 2


def delete_body() -> bytes:
    parts = [delete_records.DeleteRecordsRequestPartition(partition, -1) for partition in range(2)]
    topic = delete_records.DeleteRecordsRequestTopic("t", parts)
    request = delete_records.DeleteRecordsRequest([topic], 30_000)
    return b"".join(map(bytes, delete_records.encode_request(request, V)))


async def test_the_revision_of_a_deletion_goes_with_every_later_read(cluster: Cluster) -> None:
    cluster.serve(Backend.ADMIN, 1)
    cluster.serve(Backend.FETCH, 1)
    deleter, reader = cluster.client(), cluster.client()
    deleter.ask(DELETE_RECORDS, V, delete_body())
    (sent,) = cluster.stream(Backend.ADMIN, 1, "control").sent
    reader.fetch(("t", 0))
    sent.reply(b"done", revision=41)
    await settled()
    assert len(deleter.answers) == 1
    cluster.fetcher(1).sent[0].give()
    await settled()
    reader.fetch(("t", 0))
    reader.ask(LIST_OFFSETS, 7, *list_offsets.encode_request(list_offsets.ListOffsetsRequest(), 7))
    await settled()
    fetches = [sent.meta for sent in cluster.fetcher(1).sent]
    (listing,) = [sent.meta for sent in cluster.stream(Backend.FETCH, 1, "control").sent]
    assert [meta.log_start_revision for meta in (*fetches, listing)] == [0, 41, 41]
    assert {meta.revision for meta in (*fetches, listing)} == {0}, "no commit was acknowledged"


async def test_each_part_of_a_split_fetch_says_it(cluster: Cluster) -> None:
    cluster.serve(Backend.ADMIN, 1)
    first, second = split_over_two(cluster)
    client = cluster.client()
    client.ask(DELETE_RECORDS, V, delete_body())
    (sent,) = cluster.stream(Backend.ADMIN, 1, "control").sent
    sent.reply(b"done", revision=41)
    await settled()
    client.fetch(("t", first), ("t", second))
    parts = [cluster.fetcher(node).sent[0] for node in NODES]
    assert [part.meta.log_start_revision for part in parts] == [41, 41]


async def test_other_calls_of_admin_move_no_log_start(cluster: Cluster) -> None:
    cluster.serve(Backend.ADMIN, 1)
    cluster.serve(Backend.FETCH, 1)
    client = cluster.client()
    client.ask(37, 3, b"\x01\0\0\0\0\0\0")
    (sent,) = cluster.stream(Backend.ADMIN, 1, "control").sent
    sent.reply(b"done", revision=41)
    await settled()
    client.fetch(("t", 0))
    (fetched,) = cluster.fetcher(1).sent
    assert fetched.meta.log_start_revision == 0


async def test_a_deletion_that_may_have_happened_is_unknown_and_not_repeated(cluster: Cluster) -> None:
    cluster.serve(Backend.ADMIN, 1, 2)
    client = cluster.client()
    client.ask(DELETE_RECORDS, V, delete_body())
    (sent,) = [one for stream in cluster.streams.values() for one in stream.sent]
    sent.lose(sent=True)
    await settled()
    (topic,) = delete_records.decode_response(client.answers[0].body, V).topics
    assert [(part.low_watermark, part.error_code) for part in topic.partitions] == [(-1, 7), (-1, 7)]
    assert sum(len(stream.sent) for stream in cluster.streams.values()) == 1
