"""The topic config `kafscale.bundles` comes before the setting, also while an instance runs."""

from __future__ import annotations

import asyncio

from produce_harness import Cluster, batch, change


async def test_a_topic_says_whether_its_records_go_into_bundles(cluster: Cluster) -> None:
    """Whatever the service is set to, and from its next flush on."""
    topic = await cluster.topic()
    said = {"": None, "true": True, "false": False, "service": None}
    sent = []
    for by_default in (False, True):
        node = await cluster.node(bundles=by_default)
        for word, bundled in said.items():
            await change(cluster, node, topic, configs={"kafscale.bundles": word} if word else {})
            value = b"%d" % len(sent)
            assert (await node.send(topic, 0, batch(value))).base_offset == len(sent)
            sent.append(value)
            newest = (await cluster.head(topic)).tail[-1]
            assert newest.is_slice == (by_default if bundled is None else bundled)
        await node.kill()
    assert await cluster.log(topic) == sent


async def test_records_that_wait_while_a_topic_leaves_bundles_are_written_all_the_same(
    cluster: Cluster,
) -> None:
    node = await cluster.node(bundles=True)
    topic = await cluster.topic()
    sent = []
    for number in range(40):
        sent += [node.send(topic, 0, batch(b"%d" % (3 * number + n))) for n in range(3)]
        await change(
            cluster, node, topic, configs={"kafscale.bundles": "true" if number % 8 < 4 else "false"}
        )
        if number % 4 == 2:  # no change meets these
            await sent[-1]
    async with asyncio.timeout(20):
        assert [(await answer).base_offset for answer in sent] == list(range(120))
    assert await cluster.log(topic) == [b"%d" % n for n in range(120)]
    assert 0 < node.metric("bundle_bytes_count") < node.metric("flushes_total"), "slices and segments"
