"""The protocol of one transactional id as a model: two producers, coordinators, and the owners of two partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tools.transaction_model.clients import client_moves
from tools.transaction_model.coordinator import Coordinators
from tools.transaction_model.laws import broken_state, broken_step
from tools.transaction_model.mutations import Mutation
from tools.transaction_model.owner import Owners
from tools.transaction_model.search import Step
from tools.transaction_model.state import Config, State


class Protocol(NamedTuple):
    config: Config
    mutation: Mutation | None = None

    def initial(self) -> State:
        return State(timeouts=self.config.timeouts)

    def moves(self, state: State) -> Iterator[tuple[Step, State]]:
        yield from client_moves(state, self.config)
        yield from Coordinators(self.config, self.mutation).moves(state)
        yield from Owners(self.config, self.mutation).moves(state)

    def broken_step(self, before: State, after: State) -> str | None:
        return broken_step(before, after)

    def broken_state(self, state: State) -> str | None:
        return broken_state(state, Owners(self.config, self.mutation))
