"""What operators type, in the order of a story, and where KafScale's answers may differ from Apache Kafka's.

Every example of the ops document is here, with what its tool says when the topic, the group or the value is wrong.
"""

from __future__ import annotations

import re

from kafscale.wire.errors import ErrorCode

from e2e.harness.kafka_tools import Answer
from e2e.harness.side_by_side import masked

FIRST_TIMESTAMP = 1_700_000_000_000
KEYED = "a:1\nb:2\nc:3\nd:4\ne:5\nf:6\n"
KEYS = "--property parse.key=true --property key.separator=:"
SHOWN = "--property print.key=true --property print.partition=true --property print.offset=true"
READ = "kafka-console-consumer --timeout-ms 60000"
READ_ORDERS = "kafka-console-consumer --topic orders --group my-group --from-beginning"
CONFIGS = "kafka-configs --alter --entity-type topics --entity-name"
DESCRIBE = "kafka-configs --describe --entity-type topics --entity-name"

USER = "kafka-configs --alter --entity-type users --entity-name"
GROUP = "--entity-type groups --entity-name my-group"
WITHOUT_EFFECT = "min.insync.replicas=2,segment.ms=3600000,preallocate=TRUE,local.retention.ms=1000"

TOPICS = (
    "kafka-topics --list  at first",
    "kafka-topics --create --topic orders --partitions 3 --replication-factor 1",
    "kafka-topics --create --topic orders",
    "kafka-topics --create --topic orders --if-not-exists",
    "kafka-topics --create --topic notes",
    "kafka-topics --create --topic timed --partitions 1 --config retention.ms=-1",  # its records are of 2023
    "kafka-topics --create --topic bills --config retention.ms=1000 --config retention.bytes=2000",
    "kafka-topics --create --topic ledger --config cleanup.policy=compact",
    "kafka-topics --create --topic placed --replica-assignment 1,1",
    "kafka-topics --create --topic bad --config nonsense=1",
    "kafka-topics --create --topic bad --config retention.ms=-2",
    "kafka-topics --create --topic bad --partitions 0",
    "kafka-topics --create --topic bad --replication-factor 0",
    "kafka-topics --create --topic bad!",
    "kafka-topics --list",
    "kafka-topics --list --topic 'orders|no.*'",
    "kafka-topics --describe",
    "kafka-topics --describe --topic orders",
    "kafka-topics --describe --topic missing",
    "kafka-topics --describe --topic missing --if-exists",
    "kafka-topics --describe --topic-id AAAAAAAAAAAAAAAAAAAAAQ",
    "kafka-topics --describe --topics-with-overrides",
    "kafka-topics --describe --under-replicated-partitions",
    "kafka-topics --describe --unavailable-partitions",
    "kafka-topics --alter --topic orders --partitions 6",
    "kafka-topics --describe --topic orders  with more partitions",
    "kafka-topics --alter --topic orders --partitions 6  again",
    "kafka-topics --alter --topic orders --partitions 3",
    "kafka-topics --alter --topic missing --partitions 3",
)
TOPIC_CONFIGS = (
    f"{DESCRIBE} orders",
    f"{CONFIGS} orders --add-config retention.ms=604800000",
    f"{DESCRIBE} orders  with retention.ms",
    f"{CONFIGS} orders --add-config retention.ms=120000",
    f"{CONFIGS} orders --add-config retention.bytes=1000000,segment.bytes=1048576",
    f"{DESCRIBE} orders  with all three",
    "kafka-configs --describe --topic bills",
    f"{CONFIGS} orders --delete-config retention.ms",
    f"{DESCRIBE} orders  without retention.ms",
    f"{CONFIGS} orders --delete-config retention.ms  that is gone",
    f"{CONFIGS} orders --add-config {WITHOUT_EFFECT}",
    f"{DESCRIBE} orders  with what has no effect",
    f"{CONFIGS} orders --delete-config min.insync.replicas,segment.ms,preallocate,local.retention.ms",
    f"{CONFIGS} orders --add-config min.insync.replicas=0",
    f"{CONFIGS} orders --add-config remote.storage.enable=true",
    f"{CONFIGS} orders --add-config nonsense=1",
    f"{CONFIGS} orders --add-config retention.ms=-2",
    f"{CONFIGS} orders --add-config retention.ms=often",
    f"{CONFIGS} orders --add-config segment.bytes=0",
    f"{CONFIGS} missing --add-config retention.ms=1",
    f"{DESCRIBE} missing",
    "kafka-configs --describe --entity-type brokers --entity-name 1",
    "kafka-configs --describe --entity-type brokers",
    "kafka-configs --describe --entity-type client-metrics",
)
GROUP_CONFIGS = (  # of which the tools of 3.7 know nothing
    f"kafka-configs --describe {GROUP}",
    f"kafka-configs --alter {GROUP} --add-config consumer.session.timeout.ms=50000",
    f"kafka-configs --describe {GROUP}  with a session timeout",
    "kafka-configs --describe --entity-type groups",
    f"kafka-configs --alter {GROUP} --add-config consumer.session.timeout.ms=1",
    f"kafka-configs --alter {GROUP} --add-config nonsense=1",
    f"kafka-configs --alter {GROUP} --add-config share.auto.offset.reset=earliest",
    f"kafka-configs --alter {GROUP} --delete-config consumer.session.timeout.ms,share.auto.offset.reset",
    f"kafka-configs --describe {GROUP}  with nothing left",
)
CLUSTER = (
    "kafka-acls --list",
    "kafka-acls --add --allow-principal User:a --operation Read --topic orders",
    "kafka-acls --remove --force --topic orders",
    "kafka-reassign-partitions --list",
    "kafka-cluster cluster-id",
    "kafka-leader-election --election-type preferred --topic orders --partition 0",
    "kafka-leader-election --election-type unclean --topic orders --partition 0",
    "kafka-leader-election --election-type preferred --topic orders --partition 77",
)
USERS = (
    "kafka-configs --describe --entity-type users",
    f"{USER} alice --add-config SCRAM-SHA-512=[password=alice-secret]",
    f"{USER} alice --add-config SCRAM-SHA-256=[iterations=8192,password=alice-secret]",
    f"{USER} bob --add-config SCRAM-SHA-256=[password=bob-secret]",
    "kafka-configs --describe --entity-type users  with two users",
    "kafka-configs --describe --entity-type users --entity-name alice",
    "kafka-configs --describe --user bob",
    "kafka-configs --describe --user nobody",
    f"{USER} alice --add-config SCRAM-SHA-512=[iterations=5000,password=another-secret]",
    f"{USER} alice --add-config SCRAM-SHA-512=[iterations=4095,password=alice-secret]",
    f"{USER} alice --add-config SCRAM-SHA-512=[iterations=16385,password=alice-secret]",
    f"{USER} alice --add-config SCRAM-SHA-1=[password=alice-secret]",
    "kafka-configs --describe --entity-type users  after changes",
    f"{USER} alice --delete-config SCRAM-SHA-256",
    f"{USER} alice --delete-config SCRAM-SHA-256  again",
    f"{USER} nobody --delete-config SCRAM-SHA-512",
    f"{USER} alice --delete-config SCRAM-SHA-512",
    f"{USER} bob --delete-config SCRAM-SHA-256",
    "kafka-configs --describe --entity-type users  with nobody left",
)
RECORDS = (
    f"kafka-console-producer --topic orders {KEYS} <<< {KEYED}",
    "kafka-console-producer --topic notes <<< one\ntwo\nthree\nfour\nfive\n",
    f"kafka-console-producer --topic notes {KEYS} <<< no separator\n",
    "kafka-console-producer --topic ledger <<< a record without a key\n",
    f"kafka-console-producer --topic ledger {KEYS} <<< debt:7\n",
    "kafka-get-offsets",
    "kafka-get-offsets --topic orders",
    "kafka-get-offsets --topic orders --time -1",
    "kafka-get-offsets --topic orders --time earliest",
    "kafka-get-offsets --topic timed --time -2",
    "kafka-get-offsets --topic timed --time -3",
    "kafka-get-offsets --topic timed --time -4",
    "kafka-get-offsets --topic timed --time -5",
    f"kafka-get-offsets --topic timed --time {FIRST_TIMESTAMP + 1500}",
    f"kafka-get-offsets --topic timed --time {FIRST_TIMESTAMP + 9000}",
    "kafka-get-offsets --topic timed --time never",
    "kafka-get-offsets --topic-partitions orders:2-4,notes:0",
    "kafka-get-offsets --topic orders --partitions 0,9",
    "kafka-get-offsets --topic missing",
    f"{READ} --topic notes --partition 0 --offset 2 --max-messages 3",
    f"{READ} --topic orders --group readers --from-beginning --max-messages 6 {SHOWN}",
)
DELETED = (
    "kafka-delete-records --offset-json-file two.json",
    "kafka-get-offsets --topic notes --time -2  after records were deleted",
    f"{READ} --topic notes --partition 0 --offset earliest --max-messages 3",
    "kafka-delete-records --offset-json-file one.json  below the start",
    "kafka-delete-records --offset-json-file nine.json  beyond the end",
    "kafka-delete-records --offset-json-file all.json",
    "kafka-get-offsets --topic notes --time -2  after all were deleted",
)
WITH_A_MEMBER = (
    "kafka-consumer-groups --list  with a member",
    "kafka-consumer-groups --list --state  with a member",
    "kafka-consumer-groups --describe --group my-group --state  with a member",
    "kafka-consumer-groups --describe --group my-group --members  with a member",
    "kafka-consumer-groups --delete --group my-group  with a member",
    "kafka-consumer-groups --reset-offsets --group my-group --topic orders --to-earliest --execute  as well",
)
GROUPS = (
    "kafka-consumer-groups --list",
    "kafka-consumer-groups --describe --group my-group",
    "kafka-consumer-groups --describe --group my-group --state",
    "kafka-consumer-groups --describe --group missing",
    "kafka-consumer-groups --reset-offsets --group my-group --topic orders:4 --to-offset 1 --execute",
    f"{READ} --topic orders --group my-group --max-messages 1 {SHOWN}",
    "kafka-consumer-groups --describe --group my-group  after a reset",
    "kafka-consumer-groups --delete --group my-group",
    "kafka-consumer-groups --delete --group my-group  again",
    "kafka-consumer-groups --delete --group readers",
    "kafka-consumer-groups --list  in the end",
)
DELETIONS_OF_RECORDS = {"one": 1, "two": 2, "nine": 9, "all": -1}
DELETIONS = (
    "kafka-topics --delete --topic notes",
    "kafka-topics --delete --topic notes  again",
    "kafka-topics --delete --topic notes --if-exists",
    "kafka-topics --create --topic notes --partitions 2",
    "kafka-get-offsets --topic notes  of a topic made again",
    "kafka-topics --delete --topic '(notes|timed|bills|ledger|placed|orders)'",
    "kafka-topics --list --exclude-internal  in the end",
)
COMMANDS = (
    *TOPICS,
    *TOPIC_CONFIGS,
    *GROUP_CONFIGS,
    *CLUSTER,
    *USERS,
    *RECORDS,
    *DELETED,
    *WITH_A_MEMBER,
    *GROUPS,
    *DELETIONS,
)
"""In this order. Words after two spaces distinguish a command from an earlier equal one."""

EXAMPLES = {
    "kafka-consumer-groups --list": r"^my-group$",
    "kafka-consumer-groups --describe --group my-group": r"^my-group +orders +4 +2 +2 +0 ",
    f"{DESCRIBE} orders": r"\ADynamic configs .* orders are:\Z",
    f"{CONFIGS} orders --add-config retention.ms=604800000": r"\ACompleted updating config for topic orders\.\Z",
    f"{DESCRIBE} orders  with retention.ms": r"^  retention\.ms=604800000 ",
    "kafka-topics --alter --topic orders --partitions 6": r"\A\Z",
    "kafka-topics --describe --topic orders  with more partitions": r"\tPartitionCount: 6\t",
    f"{CONFIGS} orders --add-config retention.ms=120000": r"\ACompleted updating config for topic orders\.\Z",
    f"{DESCRIBE} orders  with all three": r"^  retention\.ms=120000 ",
    "kafka-consumer-groups --delete --group my-group": r"\ADeletion .* groups \('my-group'\) was successful\.\Z",
    "kafka-consumer-groups --list  in the end": r"\A\Z",
}
"""The ops document's examples and how each is seen to have done its work -> what KafScale's answer must match."""

OWN_WORDS = {
    "kafka-topics --create --topic bad!": "'bad!' holds characters other than",
    "kafka-topics --alter --topic orders --partitions 6  again": "Topic currently has 6 partitions",
    "kafka-topics --alter --topic orders --partitions 3": "not lower than the requested 3",
    f"{CONFIGS} orders --add-config retention.ms=-2": "retention.ms",
    f"{CONFIGS} orders --add-config retention.ms=often": "retention.ms",
    f"{CONFIGS} orders --add-config segment.bytes=0": "segment.bytes",
    f"{CONFIGS} orders --add-config min.insync.replicas=0": "min.insync.replicas",
    f"{CONFIGS} orders --add-config remote.storage.enable=true": "remote.storage.enable",
    f"kafka-configs --alter {GROUP} --add-config consumer.session.timeout.ms=1": "session.timeout.ms",
    f"{CONFIGS} missing --add-config retention.ms=1": "Topic 'missing' does not exist.",
    f"{DESCRIBE} missing": "Topic 'missing' does not exist.",
}
"""Refusals whose text is not Kafka's -> what is in ours. The last is not refused by kafka-configs of 4.3."""
NOT_OURS = (
    re.compile(r"^.*__consumer_offsets.*$", re.MULTILINE),  # offsets are in etcd here
    re.compile(r"\tElr:.*$", re.MULTILINE),  # there are no replicas that could lag
    # A Kafka with KIP-966 sets it for all brokers itself, to what it is by default.
    re.compile(r", DYNAMIC_DEFAULT_BROKER_CONFIG:min\.insync\.replicas=1"),
)
MECHANISMS = re.compile(r"(?<= are )SCRAM-.*")
"""Of a user. Kafka lists them in an order that differs between processes."""
INTERNALS = re.compile(r"Request Request\(.*\) needs \w+ permission\.")
"""Kafka's words for a denial on the cluster: Java objects of its request. KafScale has the words of the code."""


def in_words(text: str) -> str:
    """The text with the words of the code in place of Kafka's internals."""
    return INTERNALS.sub(ErrorCode.CLUSTER_AUTHORIZATION_FAILED.message, text)


def rows(answer: Answer) -> list[str]:
    """What a tool has printed, in a form that is equal for both systems."""
    text = "\n".join(map(in_words, answer.text.splitlines()))
    for pattern in NOT_OURS:
        text = pattern.sub("", text)
    return masked(MECHANISMS.sub(lambda found: ", ".join(sorted(found[0].split(", "))), text))
