"""`kafscale up`: the whole system on one machine, without containers.

A real etcd, the five services and upkeep as separate processes, and the object store in a directory. The fork server
(`fork_server.py`) is the first process and forks the others on request; this module runs in the supervisor.
The supervisor holds the data directory's lock, so every registration that it finds in etcd at the
start belongs to a dead process. It removes them, so the new processes do not wait for leases to
expire. It reports "ready" only after the front door answered a Metadata request. It does not wait for upkeep.
"""

from __future__ import annotations

import asyncio
import datetime
import errno
import os
import shlex
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from itertools import count
from typing import Any, TypeVar

from kafscale.access.protocol import SecurityProtocol
from kafscale.cli.child_log import grouped, last_trouble, last_words
from kafscale.cli.forked import ForkClient
from kafscale.cli.supervisor import (
    STEADY_AFTER_S,
    Child,
    ChildSpec,
    ChildState,
    Supervisor,
    restart_backoff,
)
from kafscale.cli.up_plan import UpPlan, service_program
from kafscale.client.request import RETRY_S, wait_for_brokers
from kafscale.operations.datadir import DataDir, Endpoints, started_etcd
from kafscale.operations.disk import Disk, DiskWatch
from kafscale.operations.services import ROLES, SERVICES
from kafscale.operations.target import StoreKind
from kafscale.runtime.addresses import join_address
from kafscale.runtime.etcd_binary import EtcdFailed, EtcdProcess
from kafscale.storage.backoff import Backoff
from kafscale.storage.etcd.client import EtcdClient, EtcdError
from kafscale.storage.keys import Keyspace, prefix_end
from kafscale.storage.membership.members import InstanceState, LiveView

LOOK_S = 5.0
LOOKS_PER_REPORT = 12
DELAY_VARIABLE = "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS"
ROOM_POLL_S = 0.5
CONSOLE = "console"
CONSOLE_HOST = "127.0.0.1"
CONSOLE_START_S = 60.0
CONSOLE_CA = "KAFSCALE_CONSOLE_CA"
CONSOLE_LOGIN = "KAFSCALE_CONSOLE_COMMAND_CONFIG"


class CannotStart(Exception):
    """`up` cannot start. The text says what is wrong and what to do."""


class Stopped(Exception):
    """A stop was requested before everything was started."""


Report = Callable[[str], None]
T = TypeVar("T")


def check_port_free(host: str, port: int) -> None:
    """Raises CannotStart for a port in use: with SO_REUSEPORT two clusters would silently share the clients."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as trouble:
            if trouble.errno == errno.EADDRINUSE:
                raise CannotStart(
                    f"{join_address(host, port)} is in use by another program; stop it, or choose another port "
                    f"(make up PORT={port + 1}, kafscale up --port {port + 1})"
                ) from trouble
            raise CannotStart(f"cannot listen on {join_address(host, port)}: {trouble.strerror}") from trouble


async def _listening(host: str, port: int) -> None:
    """Waits until something listens there. The caller sets the deadline."""
    while True:
        try:
            _, writer = await asyncio.open_connection(host, port)
        except OSError:
            await asyncio.sleep(RETRY_S)
            continue
        writer.close()
        return


class Up:
    """One run of `kafscale up`. `processes` starts the services; `report` gets one line for each event."""

    def __init__(self, plan: UpPlan, processes: ForkClient, report: Report) -> None:
        self._plan = plan
        self._processes = processes
        self._report = report
        self._data = DataDir(plan.data_dir)
        self._keys = Keyspace(plan.namespace)
        self._with_records = plan.store is StoreKind.DIR
        self._etcd_disk = DiskWatch(self._data.disk)
        self._stop = asyncio.Event()
        self._tls: Mapping[str, Mapping[str, str]] = {}
        """Role -> the settings that name its certificate."""

    async def run(self) -> None:
        """Starts everything, keeps it running until SIGTERM, and drains it. The fork server makes SIGTERM of Ctrl-C."""
        self._data.acquire(pid_of_up=os.getppid())
        try:
            check_port_free(self._plan.host, self._plan.port)
            if self._plan.internal_tls:
                self._tls = self._certificates()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop.set)
            async with self._etcd_server() as endpoint:
                etcd = EtcdClient.connect([endpoint])
                try:
                    await self._run_services(endpoint, etcd)
                finally:
                    await etcd.close()
        except Stopped:
            self._report("stopped")
        finally:
            self._data.release()

    def _certificates(self) -> Mapping[str, Mapping[str, str]]:
        from kafscale.cli.internal_tls import EphemeralAuthority, environment  # 140 ms of imports

        authority = EphemeralAuthority(self._data.tls, datetime.datetime.now(datetime.UTC))
        return {role: environment(authority.issue(role)) for role in ROLES}

    @asynccontextmanager
    async def _etcd_server(self) -> AsyncIterator[str]:
        async with AsyncExitStack() as stack:
            started = started_etcd(self._data, self._report, self._plan.etcd_quota_bytes)
            server = await self._unless_stopped(stack.enter_async_context(started))
            self._report(f"etcd serves on {server.endpoint}")
            watcher = asyncio.create_task(self._keep_etcd(server), name="etcd")
            try:
                yield server.endpoint
            finally:
                watcher.cancel()
                await asyncio.wait({watcher})

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns. A stop cancels it: a download may take minutes. Raises Stopped."""
        working, stop = asyncio.create_task(work), asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({working, stop}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
        finally:
            stop.cancel()
            working.cancel()
            await asyncio.wait({working})
        raise Stopped

    async def _keep_etcd(self, server: EtcdProcess) -> None:
        """Restarts etcd when it dies, on the same port, because the services have no other address. The pauses between
        the restarts grow."""
        backoff = restart_backoff()
        while True:
            began_s = time.monotonic()
            code = await server.wait()
            if time.monotonic() - began_s > STEADY_AFTER_S:
                backoff.reset()
            why = last_words(self._data.logs / "etcd.log")
            self._say_etcd(f"etcd ended with code {code}", f"starting it again: {why}")
            while not await self._started_again(server, backoff):
                continue

    async def _started_again(self, server: EtcdProcess, backoff: Backoff) -> bool:
        await self._pause(backoff.next_s())
        try:
            await server.start()
        except EtcdFailed as trouble:
            self._say_etcd("etcd does not start", f"{trouble}\nstarting it again")
            return False
        return True

    async def _pause(self, pause_s: float) -> None:
        """Ends early if the disk was full and has room again."""
        until_s, was_full = time.monotonic() + pause_s, self._etcd_disk.is_full()
        while (left_s := until_s - time.monotonic()) > 0:
            await asyncio.sleep(min(left_s, ROOM_POLL_S))
            if was_full and not self._etcd_disk.is_full():
                return

    def _say_etcd(self, what: str, otherwise: str) -> None:
        """A full disk is the reason, and etcd cannot log it: its log is on the same disk. It is said once."""
        full = self._etcd_disk.news()
        if full is not None:
            self._report(f"{what}: {full}; it goes on by itself once there is room")
        elif not self._etcd_disk.is_full():
            self._report(f"{what}; {otherwise}")

    async def _run_services(self, endpoint: str, etcd: EtcdClient) -> None:
        await self._forget(etcd, self._keys.live_prefix(), *(self._keys.nodes_prefix(role) for role in ROLES))
        async with asyncio.TaskGroup() as group:
            supervisor = Supervisor(group, self._processes, self._on_change)
            views = {role: LiveView(etcd, self._keys, role) for role in ROLES}
            watchers = [group.create_task(view.run()) for view in views.values()]
            watchers.append(group.create_task(self._processes.run()))
            watchers += [group.create_task(each.watch(self._report)) for each in self._disks()]
            for role, node_id in self._plan.instances():
                supervisor.start(self._spec(role, node_id, endpoint, etcd))
            watchers.append(group.create_task(self._announce(supervisor, views, endpoint)))
            await self._stop.wait()
            self._report("stopping: draining")
            if CONSOLE in supervisor.children:
                await supervisor.stop(CONSOLE)
            for role in reversed(ROLES):
                names = [f"{role}-{node_id}" for each, node_id in self._plan.instances() if each == role]
                await asyncio.gather(*(supervisor.stop(name) for name in names))
            for task in watchers:
                task.cancel()
        self._report("stopped")

    def _disks(self) -> list[DiskWatch]:
        found = self._data.disks(with_records=self._with_records)
        return [DiskWatch(partial(Disk.of, each.path, each.use)) for each in found]

    async def _forget(self, etcd: EtcdClient, *prefixes: bytes) -> None:
        await asyncio.gather(*(etcd.delete(prefix, range_end=prefix_end(prefix)) for prefix in prefixes))

    async def _forget_node(self, etcd: EtcdClient, role: str, node_id: int) -> None:
        """Removes a dead child's registration, so that its successor can take the node id at once. While etcd is away
        it stays; the successor then waits for the end of its lease."""
        with suppress(EtcdError):
            await etcd.delete(self._keys.node(role, node_id))
            await self._forget(etcd, self._keys.live_node_prefix(role, node_id))

    def _common(self, endpoint: str) -> dict[str, str]:
        """Where etcd and the store are."""
        found = {
            "KAFSCALE_ETCD_ENDPOINTS": endpoint,
            "KAFSCALE_ETCD_QUOTA_BYTES": str(self._plan.etcd_quota_bytes),
            "KAFSCALE_NAMESPACE": self._plan.namespace,
            "KAFSCALE_OBJECT_STORE": self._plan.store.value,
        }
        if self._with_records:
            found["KAFSCALE_OBJECT_DIR"] = str(self._data.objects)
        return found

    def _spec(self, role: str, node_id: int, endpoint: str, etcd: EtcdClient) -> ChildSpec:
        env = {
            **self._common(endpoint),
            "KAFSCALE_NODE_ID": str(node_id),
            **self._tls.get(role, {}),
        }
        if self._with_records and role == "produce":  # what upkeep and admin write makes room
            env["KAFSCALE_OBJECT_DIR_KEPT_BYTES"] = str(self._data.disk(with_records=True).kept)
        if DELAY_VARIABLE not in os.environ:  # one developer's group has all its members at once
            env[DELAY_VARIABLE] = "0"
        if role == "frontdoor":
            offset = node_id - 1
            host, port = self._plan.host, self._plan.port + offset
            protocol, advertised = self._plan.protocol, self._plan.advertised_host or host
            env["KAFSCALE_LISTENERS"] = f"{protocol}://{join_address(host, port)}"
            env["KAFSCALE_ADVERTISED_LISTENERS"] = f"{protocol}://{join_address(advertised, port)}"
        name = f"{role}-{node_id}"
        forget = partial(self._forget_node, etcd, role, node_id)
        return ChildSpec(
            name=name,
            program=service_program(role),
            env=env,
            log=self._data.logs / f"{name}.log",
            after_death=forget,
        )

    def _on_change(self, child: Child) -> None:
        if child.state is ChildState.RESTARTING:
            ended = f"{child.spec.name} ended with code {child.last_exit}; starting it again"
            self._report(f"{ended}: {last_words(child.spec.log)}")

    async def _announce(self, supervisor: Supervisor, views: Mapping[str, LiveView], endpoint: str) -> None:
        """Marks children as running when they register as ready, and reports once when clients can connect.

        Until then it reports again and again what it waits for, such as an unavailable store.
        """
        changed = asyncio.Event()
        for view in views.values():
            view.subscribe(changed.set)
            await view.loaded()
        said = frozenset[str]()
        for looks in count(1):
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._serving(supervisor, views, changed)
                break
            except TimeoutError:
                said |= self._say_not_ready(supervisor, looks, said)
        self._data.publish(
            Endpoints(
                bootstrap_servers=self._plan.bootstrap,
                etcd=endpoint,
                namespace=self._plan.namespace,
                object_dir=str(self._data.objects) if self._with_records else "",
                pid=os.getppid(),  # the first process: a signal to it ends everything
            )
        )
        if self._plan.protocol is SecurityProtocol.PLAINTEXT:
            self._report(
                f"{join_address(self._plan.host, self._plan.port)} is open: no encryption and no logins; "
                "docs/security.md closes it"
            )
        self._report(f"KafScale is ready: bootstrap.servers={self._plan.bootstrap}")
        self._report(f"commands reach it so: kafscale status --data-dir {shlex.quote(str(self._data.root))}")
        if self._plan.console_port is not None:
            await self._start_console(supervisor, self._plan.console_port, endpoint)

    async def _start_console(self, supervisor: Supervisor, port: int, endpoint: str) -> None:
        """After all others are ready, so nobody waits for it, and its imports are not those of the fork server. If it
        cannot run, the cluster does."""
        if self._plan.protocol.uses_tls and not {CONSOLE_CA, CONSOLE_LOGIN} & os.environ.keys():
            self._report(f"no console: clients need TLS here; {CONSOLE_CA} names the CA of their certificate")
            return
        try:
            check_port_free(CONSOLE_HOST, port)
        except CannotStart:
            self._report(
                f"no console: {join_address(CONSOLE_HOST, port)} is in use by another program; give --console-port "
                f"{port + 1}"
            )
            return
        env = {
            **self._common(endpoint),
            "KAFSCALE_CONSOLE_PORT": str(port),
            "KAFSCALE_CONSOLE_BOOTSTRAP_SERVERS": self._plan.bootstrap,
            "KAFSCALE_CONSOLE_SECURITY_PROTOCOL": self._plan.protocol.value,
        }
        spec = ChildSpec(
            name=CONSOLE, program=service_program(CONSOLE), env=env, log=self._data.logs / "console.log"
        )
        supervisor.mark_running(supervisor.start(spec))
        try:
            async with asyncio.timeout(CONSOLE_START_S):
                await _listening(CONSOLE_HOST, port)
        except TimeoutError:
            self._report(f"the console is not ready after {CONSOLE_START_S:.0f} s; its log is {spec.log}")
            return
        self._report(f"Console: http://{join_address(CONSOLE_HOST, port)}/")

    async def _serving(
        self, supervisor: Supervisor, views: Mapping[str, LiveView], changed: asyncio.Event
    ) -> None:
        """Returns when every service is ready and a Kafka client was answered.

        A listener with TLS or logins answers no client without them; its front door is ready when it listens.
        """
        while not self._mark_ready(supervisor, views):
            await changed.wait()
            changed.clear()
        if self._plan.protocol is SecurityProtocol.PLAINTEXT:
            await wait_for_brokers(self._plan.host, self._plan.port)

    def _mark_ready(self, supervisor: Supervisor, views: Mapping[str, LiveView]) -> bool:
        waiting = 0
        for role, node_id in self._plan.instances():
            ready = any(
                i.node_id == node_id and i.state is InstanceState.READY for i in views[role].instances()
            )
            if ready:
                supervisor.mark_running(supervisor.children[f"{role}-{node_id}"])
            elif role in SERVICES:
                waiting += 1
        return waiting == 0

    def _say_not_ready(self, supervisor: Supervisor, looks: int, said: frozenset[str]) -> frozenset[str]:
        """What the processes wait for, if that is not in `said`; all that is known after a minute, because a start on a
        loaded machine takes long. Returns what was reported."""
        late = [c.spec for c in supervisor.children.values() if c.state is not ChildState.RUNNING]
        unmet = {each.name: need for each in late if (need := last_trouble(each.log, unmet=True))}
        found = frozenset(unmet.values())
        if looks % LOOKS_PER_REPORT == 0:
            lines = grouped((each.name, last_trouble(each.log) or "starting") for each in late)
        elif not found <= said:
            lines = grouped(unmet.items())
        else:
            return frozenset()
        after = f"not ready after {looks * LOOK_S:.0f} s and still trying; the logs are in {self._data.logs}"
        self._report("\n".join([f"{after}; waiting for", *lines]))
        return found
