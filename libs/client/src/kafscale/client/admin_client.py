"""A client of a cluster, with every failure as one sentence: what happened, to what, and what to do.

It is confluent-kafka's AdminClient. `asked` and `asked_of_all` send the requests that AdminClient does not have, or
whose answers it hides, with the generated codec. librdkafka says only in its log why it cannot connect. `_Reasons`
receives the log, so none of it reaches the terminal.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, DescribeClusterResult
from kafscale.access.protocol import SecurityProtocol
from kafscale.client.request import A, Api, Q, request
from kafscale.client.security import OPEN, ClientSecurity
from kafscale.lake.unknown import NO_GROUP, NO_TOPIC
from kafscale.runtime.addresses import join_address, split_address
from kafscale.storage.backoff import Backoff
from kafscale.wire.errors import ErrorCode, WireError

CLIENT_ID: Final = "kafscale-cli"
CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 30.0
PATIENCE_S: Final = 20.0
"""For errors that pass: a coordinator that loads its groups, a partition without a leader yet."""
REFUSALS: Final = (KafkaError._AUTHENTICATION, KafkaError._SSL)
"""Errors of librdkafka: the server refuses the login, or the TLS handshake fails."""
_POLL_S: Final = 0.01
_OTHER_ADDRESSES_S: Final = 0.4
"""librdkafka tries one address of a name after the other, and the first of `localhost` is often ::1."""
_RECONNECT_MS: Final = 50
_LOG_INFO: Final = 6
_GENERIC: Final = "Broker: "
"""How librdkafka begins its own text for an error code; a broker's message replaces it."""

_PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
_HAS_MEMBERS: Final = "has members now; stop its consumers first"
_KNOWN: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: NO_TOPIC,
    ErrorCode.UNKNOWN_TOPIC_ID: NO_TOPIC,
    ErrorCode.TOPIC_ALREADY_EXISTS: "exists already; `kafscale topics alter` gives it more partitions, "
    "`kafscale configs set` other settings",
    ErrorCode.GROUP_ID_NOT_FOUND: NO_GROUP,
    ErrorCode.NON_EMPTY_GROUP: _HAS_MEMBERS,
    ErrorCode.UNKNOWN_MEMBER_ID: _HAS_MEMBERS,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "does not exist; `kafscale transactions list` shows what does",
}
_UNDECIDED: Final = frozenset(
    {
        None,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""They do not say whether a request was executed. None: no server answered. A login is refused when a connection is
made again, and librdkafka ends the requests of the lost connection with the same error."""
_AGAIN: Final = "; try again in a moment"
_PERHAPS: Final = "the change may have taken effect: look before you try again"
_NO_ANSWER: Final = "no answer in time"
_LOCAL: Final[Mapping[int, str]] = {
    KafkaError._TIMED_OUT: _NO_ANSWER,
    KafkaError._TIMED_OUT_QUEUE: _NO_ANSWER,
    KafkaError._MSG_TIMED_OUT: _NO_ANSWER,
    KafkaError._TRANSPORT: "the connection was lost",
    KafkaError._ALL_BROKERS_DOWN: "no server can be reached any more",
}
"""Errors that librdkafka finds itself."""
_LOCAL_REFUSALS: Final[Mapping[int, ErrorCode]] = {
    KafkaError._INVALID_ARG: ErrorCode.INVALID_REQUEST,
    KafkaError._INVALID_TYPE: ErrorCode.INVALID_REQUEST,
    KafkaError._UNSUPPORTED_FEATURE: ErrorCode.UNSUPPORTED_VERSION,
    KafkaError._NOT_IMPLEMENTED: ErrorCode.UNSUPPORTED_VERSION,
    KafkaError._UNKNOWN_GROUP: ErrorCode.GROUP_ID_NOT_FOUND,
    KafkaError._AUTHENTICATION: ErrorCode.SASL_AUTHENTICATION_FAILED,
}
"""Those with which it refuses what it was asked: another try ends the same."""

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class KafkaTrouble(Exception):
    """The request was not executed, or its outcome is unknown. The text is a sentence for the user.

    `code`: Kafka's error code. If the client itself refuses, it is the code with which a server would. None if no
    server answered. `passes`: a later try may not meet it."""

    passes: bool = False

    def __init__(self, sentence: str, code: int | None = None) -> None:
        super().__init__(sentence)
        self.code = code


class Passing(KafkaTrouble):
    """An error that a later try may not meet."""

    passes = True


class NoTopic(KafkaTrouble):
    """The topic does not exist."""


class OutcomeUnknown(KafkaTrouble):
    """The change was requested, and it may have taken effect or not. It has no code: nobody said what happened."""


def failure(what: str, code: int, message: str | None = None) -> KafkaTrouble:
    """For a broker's error code. `what` is the subject of the sentence: "topic 'orders'"."""
    try:
        error = ErrorCode(code)
    except ValueError:
        return KafkaTrouble(f"{what}: error {code}, which Kafka does not know", code)
    if error in _KNOWN:
        known = NoTopic if _KNOWN[error] is NO_TOPIC else KafkaTrouble
        return known(f"{what} {_KNOWN[error]}", code)
    kind = Passing if error in _PASSING else KafkaTrouble
    again = _AGAIN if error.retriable else ""
    return kind(f"{what}: {(message or error.message).rstrip('.')} ({error.name}){again}", code)


def trouble_of(what: str, error: KafkaError) -> KafkaTrouble:
    """For an error of librdkafka or of a broker. No sentence contains librdkafka's own text if it is generic."""
    code, text = error.code(), error.str()
    if code >= 0 or code == ErrorCode.UNKNOWN_SERVER_ERROR:
        return failure(what, code, None if text.startswith(_GENERIC) else text)
    if code == KafkaError._UNKNOWN_TOPIC:
        return NoTopic(f"{what} {NO_TOPIC}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if code == KafkaError._UNKNOWN_PARTITION:
        return KafkaTrouble(f"{what} has no such partition", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    why = _LOCAL.get(code, text.removeprefix("Local: "))
    if (refused := _LOCAL_REFUSALS.get(code)) is not None:
        return KafkaTrouble(f"{what}: {why}", refused)
    return KafkaTrouble(f"{what}: {why}{_AGAIN}")


def undecided(trouble: KafkaTrouble, sentence: str = _PERHAPS) -> OutcomeUnknown | None:
    """If nobody knows after this trouble whether the change was made: the trouble that says so, with the sentence of
    the change at its end."""
    if trouble.code not in _UNDECIDED:
        return None
    return OutcomeUnknown(f"{str(trouble).removesuffix(_AGAIN)}; {sentence}")


@contextmanager
def changing() -> Iterator[None]:
    """Around the request of a change. Raises OutcomeUnknown for a trouble after which nobody knows whether the server
    has made the change; also the login may be refused while the request is under way. Other troubles stay."""
    try:
        yield
    except KafkaTrouble as trouble:
        if (unknown := undecided(trouble)) is None:
            raise
        raise unknown from trouble


def patiently(ask: Callable[[], T], *, patience_s: float = PATIENCE_S) -> T:
    """Retries with back-off while `ask` raises Passing."""
    backoff = Backoff(first_ms=100, cap_ms=2_000)
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return ask()
        except Passing:
            wait_s = backoff.next_s()
            if time.monotonic() + wait_s > deadline:
                raise
            time.sleep(wait_s)


@contextmanager
def before_deletion() -> Iterator[None]:
    """Adds to a KafkaTrouble that nothing was deleted."""
    try:
        yield
    except KafkaTrouble as trouble:
        raise KafkaTrouble(f"{trouble}; nothing was deleted", trouble.code) from trouble


def one_by_one(names: Sequence[str], delete: Callable[[str], None]) -> Iterator[str]:
    """Deletes in order, and yields each name that is gone. The first failure ends it, and says what is left."""
    for at, name in enumerate(names):
        try:
            delete(name)
        except KafkaTrouble as trouble:
            left = ", ".join(f"'{each}'" for each in names[at + 1 :])
            sentence = f"{trouble}; not deleted: {left}" if left else str(trouble)
            raise KafkaTrouble(sentence, trouble.code) from trouble
        yield name


def refusal(bootstrap: str, error: KafkaError) -> KafkaTrouble:
    """For a server that does not let this client in, or that this client does not trust. `error`: one of REFUSALS."""
    why = error.str().partition(" (after ")[0]
    sentence = f"{bootstrap} and this client do not agree ({why}); look at the file of --command-config"
    return KafkaTrouble(sentence, _LOCAL_REFUSALS.get(error.code()))


class _Reasons(logging.Handler):
    """Keeps why librdkafka's last connection failed, as it logs it."""

    def __init__(self, security: ClientSecurity) -> None:
        super().__init__()
        self._security = security
        self.last = ""
        self.all_down_at: float | None = None
        self.refused: KafkaError | None = None
        """Why the server does not let this client in: another try with the same settings ends the same."""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text.startswith("FAIL "):  # FAIL [client] [thread]: address: reason (after 0ms in state CONNECT)
            self.last = text.partition("]: ")[2].partition(" (after ")[0]

    def on_error(self, error: KafkaError) -> None:
        if error.code() in REFUSALS:
            self.refused = error
        elif error.code() == KafkaError._ALL_BROKERS_DOWN and self.all_down_at is None:
            self.all_down_at = time.monotonic()

    def trouble(self, bootstrap: str) -> KafkaTrouble:
        if self.refused is not None:
            return refusal(bootstrap, self.refused)
        return KafkaTrouble(self._sentence(bootstrap))

    def _sentence(self, bootstrap: str) -> str:
        if "Disconnected" in self.last:
            why = "it closed the connection"
            if self._security.protocol is SecurityProtocol.PLAINTEXT:
                why += "; if it wants TLS or a login, give --command-config"
        elif "Timed out" in self.last or not self.last:
            why = _NO_ANSWER
        elif "Failed to resolve" in self.last:
            name = self.last.partition("'")[2].partition("'")[0].rpartition(":")[0]
            why = f"the name {name} does not resolve" if name else "the name does not resolve"
        elif "Invalid response size" in self.last or "ApiVersionRequest failed" in self.last:
            return (
                f"what listens at {bootstrap} is no Kafka server; name a front door with --bootstrap-server"
            )
        else:
            why = self.last.rpartition(": ")[2]
        return (
            f"no Kafka server answers at {bootstrap} ({why}); "
            "start one with `kafscale up`, or name another with --bootstrap-server"
        )


class Refusal:
    """Remembers that a server has not let a producer or a consumer in. librdkafka itself would try for ever."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._reason: KafkaError | None = None

    def on_error(self, error: KafkaError) -> None:
        """The `error_cb`. Lost connections show as a failed delivery or an empty poll."""
        if error.code() in REFUSALS and self._reason is None:
            self._reason = error

    def check(self) -> None:
        """Raises KafkaTrouble."""
        if self._reason is not None:
            raise refusal(self._bootstrap, self._reason)


class Client:
    """Every method raises KafkaTrouble. `cluster`: as the first server that answered described it."""

    def __init__(
        self,
        bootstrap: str,
        security: ClientSecurity = OPEN,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        client_id: str = CLIENT_ID,
    ) -> None:
        try:
            for address in bootstrap.split(","):
                split_address(address.strip())
        except ValueError as wrong:
            raise KafkaTrouble(f"--bootstrap-server: {wrong}") from wrong
        self.bootstrap = bootstrap
        self.security = security
        self._client_id = client_id
        self._reasons = _Reasons(security)
        logger = logging.Logger(CLIENT_ID)
        logger.addHandler(self._reasons)
        connect_ms = int(connect_timeout_s * 1000)
        config: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "log_level": _LOG_INFO,
            "error_cb": self._reasons.on_error,
            "socket.timeout.ms": int(ANSWER_TIMEOUT_S * 1000),
            "reconnect.backoff.ms": _RECONNECT_MS,
            "socket.connection.setup.timeout.ms": connect_ms,
            "api.version.request.timeout.ms": connect_ms,
            **security.librdkafka(),
        }
        self.admin = AdminClient(config, logger=logger)
        self.cluster = self._connect()

    @property
    def brokers(self) -> list[tuple[str, int]]:
        """Host and port of each."""
        return [(node.host, node.port) for node in self.cluster.nodes]

    def settings(self, refused: Refusal) -> dict[str, Any]:
        """Of a producer or a consumer of the same cluster."""
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": self._client_id,
            "log_level": 0,
            "error_cb": refused.on_error,
            **self.security.librdkafka(),
        }

    def _connect(self) -> DescribeClusterResult:
        cluster = self.admin.describe_cluster()
        while not cluster.done():
            self.admin.poll(_POLL_S)
            down_at = self._reasons.all_down_at
            down = down_at is not None and time.monotonic() > down_at + _OTHER_ADDRESSES_S
            if down or self._reasons.refused is not None:
                raise self._reasons.trouble(self.bootstrap)
        with self.failing("the cluster"):
            found: DescribeClusterResult = cluster.result()
        return found

    def ask(
        self, what: Callable[[K], str], send: Callable[[], Mapping[K, Future[T]]], whole: str = "the request"
    ) -> dict[K, T]:
        """The results of the futures that `send` makes, each done within ANSWER_TIMEOUT_S. `what` names a key in a
        sentence, `whole` all. `send` also builds what AdminClient gets, because both check it."""
        with self.failing(whole):
            futures = send()
        return {key: self._result(what(key), future) for key, future in futures.items()}

    def ask_one(self, what: str, send: Callable[[], Mapping[Any, Future[T]]]) -> T:
        """The result of the only future."""
        (found,) = self.ask(lambda _: what, send, what).values()
        return found

    def _result(self, what: str, future: Future[T]) -> T:
        with self.failing(what):
            return future.result()

    @contextmanager
    def failing(self, what: str) -> Iterator[None]:
        """Raises KafkaTrouble for a KafkaException, and for an argument that confluent-kafka does not take; `what` is
        the subject of the sentence."""
        try:
            yield
        except KafkaException as exception:
            raise trouble_of(what, exception.args[0]) from exception
        except (ValueError, OverflowError) as wrong:  # UnicodeEncodeError is a ValueError
            raise KafkaTrouble(f"{what}: {wrong}", ErrorCode.INVALID_REQUEST) from wrong


def asked(client: Client, what: str, api: Api[Q, A], message: Q, version: int) -> A:
    """The answer of the first broker. `what` is the subject of the sentence: "the users". Raises KafkaTrouble."""
    (answer,) = _asked(client, client.brokers[:1], what, api, message, version)
    return answer


def asked_of_all(client: Client, what: str, api: Api[Q, A], message: Q, version: int) -> list[A]:
    """The answers of all brokers, in their order. Raises KafkaTrouble if one does not answer."""
    return _asked(client, client.brokers, what, api, message, version)


def asked_at(
    client: Client, address: tuple[str, int], what: str, api: Api[Q, A], message: Q, version: int
) -> A:
    """The answer of the broker at this address. Raises KafkaTrouble."""
    (answer,) = _asked(client, [address], what, api, message, version)
    return answer


def _asked(
    client: Client, brokers: Sequence[tuple[str, int]], what: str, api: Api[Q, A], message: Q, version: int
) -> list[A]:
    async def ask() -> list[A]:
        waiting = (request(broker, api, message, version, security=client.security) for broker in brokers)
        return await asyncio.gather(*waiting)

    try:
        return asyncio.run(ask())
    except (OSError, EOFError, TimeoutError) as error:
        where = ", ".join(join_address(*broker) for broker in brokers)
        why = "no answer in time" if isinstance(error, TimeoutError) else error
        raise KafkaTrouble(f"{what} of {where}: {why}{_AGAIN}") from error
    except WireError as wrong:  # of the request: one of the answer is a BadAnswer
        raise KafkaTrouble(f"{what}: {wrong}", ErrorCode.INVALID_REQUEST) from wrong
