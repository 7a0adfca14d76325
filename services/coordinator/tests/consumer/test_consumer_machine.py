"""The consumer group under arbitrary histories: Hypothesis picks the moves, `consumer_laws` judges.

Quick: some short histories, the same in every run, and not shrunk (that takes minutes: raise
`shrink` below to see the shortest). Deep (`-m deep`): as many as there is time for.
"""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)

from services.coordinator.tests.consumer.consumer_world import Client, World

CLIENTS_MAX = 4
NAMES = ("t0", "t1", "t2", "ghost")
FATES = ("arrives",) * 5 + ("answer lost", "request lost", "crash before write", "crash amid writes")
picks = st.integers(0, CLIENTS_MAX - 1)
names = st.lists(st.sampled_from(NAMES), max_size=3, unique=True).map(tuple)
expressions = st.sampled_from((None, None, None, "", "t[01]", ".*", "t"))
have_clients = precondition(lambda self: self.world.clients)


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.world.set_topic("t0", 3)
        self.world.set_topic("t1", 2)

    def _client(self, pick: int) -> Client:
        return self.world.clients[pick % len(self.world.clients)]

    @precondition(lambda self: len(self.world.clients) < CLIENTS_MAX)
    @rule(
        static=st.booleans(),
        version=st.integers(0, 1),
        names=names,
        regex=expressions,
        assignor=st.sampled_from((None, None, "uniform", "range")),
        rebalance_timeout_ms=st.sampled_from((5_000, 20_000)),
    )
    def newcomer(
        self,
        static: bool,
        version: int,
        names: tuple[str, ...],
        regex: str | None,
        assignor: str | None,
        rebalance_timeout_ms: int,
    ) -> None:
        number = len(self.world.clients)
        client = Client(
            name=f"c{number}",
            instance_id=f"i{number}" if static else None,
            version=version,
            names=names,
            regex=regex if version else None,
            assignor=assignor,
            rebalance_timeout_ms=rebalance_timeout_ms,
        )
        client.begin()
        self.world.clients.append(client)
        self.world.heartbeat(client)

    @have_clients
    @rule(pick=picks, fate=st.sampled_from(FATES))
    def heartbeat(self, pick: int, fate: str) -> None:
        self.world.heartbeat(self._client(pick), fate)

    @have_clients
    @rule(pick=picks, fate=st.sampled_from(FATES[5:]), reconciles=st.booleans())
    def stumble(self, pick: int, fate: str, reconciles: bool) -> None:
        """One heartbeat fails, the next comes through."""
        client = self._client(pick)
        if reconciles:
            client.reconcile()
        self.world.heartbeat(client, fate)
        self.world.heartbeat(client)

    @have_clients
    @rule(pick=picks, revoke_only=st.booleans())
    def client_reconciles(self, pick: int, revoke_only: bool) -> None:
        self._client(pick).reconcile(revoke_only)

    @have_clients
    @rule(rounds=st.integers(1, 4))
    def all_are_honest_for_a_while(self, rounds: int) -> None:
        for _ in range(rounds):
            for client in self.world.clients:
                client.reconcile()
                self.world.heartbeat(client)
            self.world.pass_time(3_000)

    @have_clients
    @rule(pick=picks, skew=st.sampled_from((-2, -1, 1, 3)))
    def heartbeat_with_wrong_epoch(self, pick: int, skew: int) -> None:
        self.world.heartbeat_with_wrong_epoch(self._client(pick), skew)

    @have_clients
    @rule(pick=picks, names=names, regex=expressions)
    def resubscribe(self, pick: int, names: tuple[str, ...], regex: str | None) -> None:
        client = self._client(pick)
        client.names = names
        client.regex = regex if client.version else None
        client.resubscribed = True

    @have_clients
    @rule(pick=picks)
    def leave(self, pick: int) -> None:
        self.world.leave(self._client(pick), -1)

    @have_clients
    @rule(pick=picks, comes_back=st.booleans())
    def leave_for_a_while(self, pick: int, comes_back: bool) -> None:
        client = self._client(pick)
        if client.instance_id is not None:
            self.world.leave(client, -2)
            if comes_back:
                self.world.heartbeat(client)

    @have_clients
    @rule(pick=picks)
    def die(self, pick: int) -> None:
        """The process is gone without a word; a new one comes up at its place."""
        self._client(pick).begin()

    @have_clients
    @rule(pick=picks)
    def rejoin(self, pick: int) -> None:
        """A client that thinks that it was fenced."""
        client = self._client(pick)
        client.drop_all()
        self.world.heartbeat(client)

    @rule(name=st.sampled_from(NAMES[:3]), partitions=st.integers(0, 5), told=st.booleans())
    def topic_changes(self, name: str, partitions: int, told: bool) -> None:
        self.world.set_topic(name, partitions, told)

    @rule(elapsed_ms=st.sampled_from((0, 1_000, 3_000, 5_000, 9_999, 15_000)))
    def time_passes(self, elapsed_ms: int) -> None:
        self.world.pass_time(elapsed_ms)

    @rule()
    def crash(self) -> None:
        self.world.crash()

    @have_clients
    @rule()
    def crash_amid_an_expiry(self) -> None:
        """Of everybody."""
        self.world.crash_amid_expiry()

    @rule()
    def settle(self) -> None:
        self.world.settle()

    def teardown(self) -> None:
        self.world.settle()
        self.world.fall_silent()


def run_machine(examples: int, steps: int, *, derandomize: bool, shrink: bool) -> None:
    run_state_machine_as_test(
        GroupMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=derandomize,
            database=None,
            phases=tuple(Phase) if shrink else (Phase.generate,),
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(600)  # some seconds of work, on a machine that may be busy
def test_no_history_breaks_a_law() -> None:
    run_machine(180, 30, derandomize=True, shrink=False)


@pytest.mark.deep
@pytest.mark.timeout(3_600)
def test_no_history_breaks_a_law_in_a_long_search() -> None:
    run_machine(3_000, 60, derandomize=False, shrink=True)
