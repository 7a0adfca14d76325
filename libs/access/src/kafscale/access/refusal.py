"""Why an entry of a request is refused: ACLs and quotas answer it to the client."""

from __future__ import annotations

from dataclasses import dataclass

from kafscale.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The error of one entry of an answer, with Kafka's sentence."""

    code: ErrorCode
    message: str
