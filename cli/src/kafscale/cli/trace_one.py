"""`kafscale trace-one`: sends records one at a time and shows when each reached each step, and how long each step took.

The client asks for step times with each request (`kafscale/runtime/steps.py`), so a running cluster needs no setting.
Times of processes that share this machine's clock are compared as they are. The clock of another machine is unknown:
its steps are placed in the middle of the request that its caller sent, as if both ways took equally long.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median, quantiles
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from kafscale.cli.targets import BootstrapOption, CommandConfigOption, DataDirOption, kafka
from kafscale.cli.terminal import Output, OutputOption, notice, show_rows

if TYPE_CHECKING:
    from kafscale.client.admin_client import Client
    from kafscale.client.request import Connection, Timed

COLUMNS: Final = ("process", "step", "at_ms", "took_ms", "took_p90_ms", "clock")
CLIENT, FRONT_DOOR = "client", "frontdoor"
ASK, BEGUN = "ask ", " begun"
PRODUCE_VERSION: Final = 9
"""The first one whose header can carry step times."""
METADATA_VERSION: Final = 9
TIMEOUT_MS: Final = 10_000
WARM_UP: Final = 5
"""Records that are not counted: the first ones open connections and claim the partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """`ns`: since the client sent. `same_clock`: as measured, and not placed in the middle."""

    process: str
    name: str
    ns: int
    same_clock: bool = True


class BadReport(Exception):
    """Step times in a form that this version does not know."""


def steps_of(timed: Timed, here: str) -> list[Step]:
    """The steps of one request in order. `here`: the machine of the client. Raises BadReport."""
    found = [Step(process=CLIENT, name="sent", ns=timed.sent_ns)]
    if timed.report is not None:
        within = (timed.sent_ns, timed.received_ns)
        try:
            found += _steps_in(json.loads(timed.report), FRONT_DOOR, here, within)
        except (LookupError, TypeError, ValueError) as wrong:
            raise BadReport(str(wrong)) from wrong
    found.append(Step(process=CLIENT, name="received", ns=timed.received_ns))
    return [replace(step, ns=step.ns - timed.sent_ns) for step in found]


def _steps_in(report: dict[str, Any], process: str, caller: str, within: tuple[int, int]) -> list[Step]:
    """`within`: when the caller sent the request and had its reply, by the clock of the caller's machine."""
    noted = report["steps"]
    times = [each[1] for each in noted if isinstance(each, list)]
    same = report["machine"] == caller
    shift = 0 if same or not times else (sum(within) - times[0] - times[-1]) // 2
    found: list[Step] = []
    asked, begun_ns = "", 0
    for each in noted:
        if isinstance(each, list):
            name, ns = each
            if name.startswith(ASK) and name.endswith(BEGUN):
                asked, begun_ns = name.removeprefix(ASK).removesuffix(BEGUN), ns
            found.append(Step(process=process, name=name, ns=ns + shift, same_clock=same))
            continue
        ended_ns = found[-1].ns - shift
        inner = _steps_in(each, asked, report["machine"], (begun_ns, ended_ns))
        found += [replace(step, ns=step.ns + shift, same_clock=step.same_clock and same) for step in inner]
    return sorted(found, key=lambda step: step.ns)


def table(requests: Sequence[Sequence[Step]]) -> tuple[list[dict[str, Any]], int]:
    """A row for each step, and the number of requests that were left out because they took other steps than most."""
    ways = [tuple((step.process, step.name) for step in steps) for steps in requests]
    usual = Counter(ways).most_common(1)[0][0]
    kept = [steps for steps, way in zip(requests, ways, strict=True) if way == usual]
    rows: list[dict[str, Any]] = []
    for place, (process, name) in enumerate(usual):
        at = [steps[place].ns / 1e6 for steps in kept]
        took = [(steps[place].ns - steps[place - 1].ns) / 1e6 for steps in kept] if place else [0.0]
        p90 = quantiles(took, n=10, method="inclusive")[-1] if len(took) > 1 else took[0]
        rows.append(
            {
                "process": process,
                "step": name,
                "at_ms": round(median(at), 3),
                "took_ms": round(median(took), 3),
                "took_p90_ms": round(p90, 3),
                "clock": "same" if kept[0][place].same_clock else "other",
            }
        )
    return rows, len(requests) - len(kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    topic: str
    partition: int
    count: int
    size: int
    pause_s: float


def measure(client: Client, plan: Plan) -> list[list[Step]]:
    """Raises KafkaTrouble."""
    from kafscale.client.admin_client import KafkaTrouble

    try:
        return asyncio.run(_measure(client, plan))
    except (OSError, EOFError, TimeoutError) as error:
        why = "no answer in time" if isinstance(error, TimeoutError) else error
        raise KafkaTrouble(f"topic '{plan.topic}': {why}; try again in a moment") from error
    except BadReport as wrong:
        raise KafkaTrouble(f"the server's step times are of another version ({wrong})") from wrong


async def _measure(client: Client, plan: Plan) -> list[list[Step]]:
    from kafscale.client.admin_client import KafkaTrouble
    from kafscale.client.request import connected
    from kafscale.runtime.steps import machine

    address = await _leader(client, plan)
    here = machine()
    found: list[list[Step]] = []
    async with connected(address, client.security) as connection:
        for number in range(WARM_UP + plan.count):
            async with asyncio.timeout(TIMEOUT_MS / 1000):
                timed = await _send(connection, plan)
            if timed.report is None:
                raise KafkaTrouble(
                    "the server gives no step times; it is an earlier version or not KafScale, "
                    "or this client may not describe the cluster"
                )
            if number >= WARM_UP:
                found.append(steps_of(timed, here))
            await asyncio.sleep(plan.pause_s)
    return found


async def _leader(client: Client, plan: Plan) -> tuple[str, int]:
    from kafscale.client.admin_client import failure
    from kafscale.client.request import request
    from kafscale.wire.errors import ErrorCode
    from kafscale.wire.schema import metadata

    what = f"topic '{plan.topic}'"
    message = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=plan.topic)], allow_auto_topic_creation=False
    )
    answer = await request(client.brokers[0], metadata, message, METADATA_VERSION, security=client.security)
    (topic,) = answer.topics
    if topic.error_code != ErrorCode.NONE:
        raise failure(what, topic.error_code)
    leaders = {part.partition_index: part.leader_id for part in topic.partitions}
    if plan.partition not in leaders:
        raise failure(f"{what}, partition {plan.partition}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
    return brokers[leaders[plan.partition]]


async def _send(connection: Connection, plan: Plan) -> Timed:
    """One record. Raises KafkaTrouble if it is refused."""
    from kafscale.client.admin_client import failure
    from kafscale.wire.errors import ErrorCode
    from kafscale.wire.records import Record, build_batch
    from kafscale.wire.schema import produce

    record = Record(timestamp=int(time.time() * 1000), value=bytes(plan.size))
    part = produce.ProduceRequestPartition(index=plan.partition, records=build_batch([record]))
    message = produce.ProduceRequest(
        acks=-1,
        timeout_ms=TIMEOUT_MS,
        topic_data=[produce.ProduceRequestTopic(name=plan.topic, partition_data=[part])],
    )
    answer, timed = await connection.ask_timed(produce, message, PRODUCE_VERSION)
    (result,) = (each for topic in answer.responses for each in topic.partition_responses)
    if result.error_code != ErrorCode.NONE:
        raise failure(f"topic '{plan.topic}'", result.error_code, result.error_message)
    return timed


def trace_one(
    topic: Annotated[str, typer.Argument(help="Name of the topic. Its retention removes the records.")],
    partition: Annotated[int, typer.Option("--partition", "-p", min=0, help="The partition.")] = 0,
    count: Annotated[int, typer.Option("--count", "-c", min=1, max=100_000, help="Number of records.")] = 100,
    size: Annotated[int, typer.Option("--size", min=0, max=900_000, help="Bytes of each value.")] = 1_024,
    pause_ms: Annotated[
        int, typer.Option("--pause-ms", min=0, max=60_000, help="Wait between two records.")
    ] = 0,
    output: OutputOption = Output.TABLE,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
) -> None:
    """Send records of zeros one at a time, and print the median time of each step of their way.

    Example: kafscale trace-one greetings --count 500
    """
    plan = Plan(topic=topic, partition=partition, count=count, size=size, pause_s=pause_ms / 1000)
    with kafka(bootstrap_server, data_dir, command_config) as client:
        rows, left_out = table(measure(client, plan))
    show_rows(COLUMNS, rows, output)
    if left_out:
        notice(f"{left_out} of {count} requests took other steps and are not counted")
