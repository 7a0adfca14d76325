from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TopicParts(_message.Message):
    __slots__ = ("topic_id", "partitions")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class ParticipantSet(_message.Message):
    __slots__ = ("partitions", "groups")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[TopicParts]
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, partitions: _Optional[_Iterable[_Union[TopicParts, _Mapping]]] = ..., groups: _Optional[_Iterable[str]] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("transactional_id", "producer_id", "epoch", "add", "participants")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ADD_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    producer_id: int
    epoch: int
    add: bool
    participants: ParticipantSet
    def __init__(self, transactional_id: _Optional[str] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., add: _Optional[bool] = ..., participants: _Optional[_Union[ParticipantSet, _Mapping]] = ...) -> None: ...

class JoinReply(_message.Message):
    __slots__ = ("code", "number", "under_way_ms", "ended")
    CODE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    UNDER_WAY_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    code: int
    number: int
    under_way_ms: int
    ended: TransactionEnd
    def __init__(self, code: _Optional[int] = ..., number: _Optional[int] = ..., under_way_ms: _Optional[int] = ..., ended: _Optional[_Union[TransactionEnd, _Mapping]] = ...) -> None: ...

class TransactionEnd(_message.Message):
    __slots__ = ("producer_id", "number", "commit", "marker_epoch", "coordinator_epoch", "participants")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    MARKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    number: int
    commit: bool
    marker_epoch: int
    coordinator_epoch: int
    participants: ParticipantSet
    def __init__(self, producer_id: _Optional[int] = ..., number: _Optional[int] = ..., commit: _Optional[bool] = ..., marker_epoch: _Optional[int] = ..., coordinator_epoch: _Optional[int] = ..., participants: _Optional[_Union[ParticipantSet, _Mapping]] = ...) -> None: ...

class EndRequest(_message.Message):
    __slots__ = ("ends",)
    ENDS_FIELD_NUMBER: _ClassVar[int]
    ends: _containers.RepeatedCompositeFieldContainer[TransactionEnd]
    def __init__(self, ends: _Optional[_Iterable[_Union[TransactionEnd, _Mapping]]] = ...) -> None: ...

class EndReply(_message.Message):
    __slots__ = ("done",)
    class Done(_message.Message):
        __slots__ = ("producer_id", "number", "participants")
        PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
        NUMBER_FIELD_NUMBER: _ClassVar[int]
        PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
        producer_id: int
        number: int
        participants: ParticipantSet
        def __init__(self, producer_id: _Optional[int] = ..., number: _Optional[int] = ..., participants: _Optional[_Union[ParticipantSet, _Mapping]] = ...) -> None: ...
    DONE_FIELD_NUMBER: _ClassVar[int]
    done: _containers.RepeatedCompositeFieldContainer[EndReply.Done]
    def __init__(self, done: _Optional[_Iterable[_Union[EndReply.Done, _Mapping]]] = ...) -> None: ...

class OverRequest(_message.Message):
    __slots__ = ("producer_id", "number")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    number: int
    def __init__(self, producer_id: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class OverReply(_message.Message):
    __slots__ = ("code", "over", "slots")
    CODE_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    code: int
    over: bool
    slots: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, code: _Optional[int] = ..., over: _Optional[bool] = ..., slots: _Optional[_Iterable[int]] = ...) -> None: ...
