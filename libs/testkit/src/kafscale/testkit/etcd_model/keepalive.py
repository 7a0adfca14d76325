"""The keepalive of a process whose etcd is in memory: the decisions of `Keepalive`, in a task instead of a thread."""

from __future__ import annotations

import asyncio

import grpc.aio
from kafscale.etcd.v3 import rpc_pb2 as pb
from kafscale.storage.etcd.errors import EtcdError, classify
from kafscale.storage.etcd.pool import LEASE_KEEPALIVE, serialize
from kafscale.storage.membership.keepalive import LEASE_TTL_S, TRY_TIMEOUT_S, WAIT, Keepalive


class KeepaliveTask(Keepalive):
    _task: asyncio.Task[None] | None = None
    _channel: grpc.aio.Channel | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="etcd-keepalive")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def join(self, timeout_s: float) -> None:
        """A task that was cancelled sends nothing any more."""

    async def _run(self) -> None:
        steps = self.steps()
        try:
            step = next(steps)
            while True:
                if step is not WAIT:
                    step = steps.send(await self._ask(step))
                else:
                    await asyncio.sleep(self._pace.interval_s)
                    step = steps.send(None)
        except StopIteration:
            self._on_lost(self._lease)
        finally:
            await self._disconnect()

    async def _ask(self, number: int) -> int | EtcdError:
        endpoint = self._access.endpoints[number]
        if self._channel is None:
            self._channel = self._access.channel(endpoint)
        stream = self._channel.stream_stream(
            LEASE_KEEPALIVE.path, serialize, LEASE_KEEPALIVE.answer.FromString
        )
        call = stream(metadata=(("hasleader", "true"),))
        try:
            async with asyncio.timeout(TRY_TIMEOUT_S):
                await call.write(pb.LeaseKeepAliveRequest(ID=self._lease))
                answer = await call.read()
                return answer.TTL if isinstance(answer, pb.LeaseKeepAliveResponse) else LEASE_TTL_S
        except grpc.aio.AioRpcError as error:
            failure = classify(error.code(), error.details() or "", endpoint.target)
        except TimeoutError:
            failure = classify(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer", endpoint.target)
        finally:
            call.cancel()
        await self._disconnect()
        return failure

    async def _disconnect(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()
