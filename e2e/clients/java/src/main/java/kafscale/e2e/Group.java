package kafscale.e2e;

import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Apache Kafka's Java consumer as a member of a group; see e2e/clients/README.md. */
final class Group implements ConsumerRebalanceListener {
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    // By name: clients before 2.3 do not have them.
    private static final Set<String> ANOTHER_HAS_THE_INSTANCE =
        Set.of("FencedInstanceIdException", "UnreleasedInstanceIdException");

    private final Map<String, String> args;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final Map<TopicPartition, OffsetAndMetadata> read = new HashMap<>(); // not committed yet
    private volatile boolean stopping;
    private volatile boolean clean;

    Group(Map<String, String> args) {
        this.args = args;
        Map<String, Object> config = Security.added(Map.of(
            "bootstrap.servers", args.get("bootstrap"), "group.id", args.get("group"),
            "group.protocol", args.get("protocol"), "auto.offset.reset", "earliest", "enable.auto.commit", false), args);
        if (args.get("protocol").equals("classic")) {
            config.put("session.timeout.ms", args.get("session-ms"));
            config.put("heartbeat.interval.ms", 1000);
            config.put("partition.assignment.strategy", ASSIGNORS.get(args.get("assignor")));
        }
        if (args.containsKey("instance")) {
            config.put("group.instance.id", args.get("instance"));
        }
        consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    void run() {
        CountDownLatch closed = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> leave(closed))); // SIGTERM
        try {
            consumer.subscribe(List.of(args.get("topic")), this);
            while (!stopping) {
                poll();
            }
            consumer.close();
            event("left", List.of(), -1, "");
            clean = true;
        } catch (KafkaException error) {
            if (!isFatal(error)) {
                throw error;
            }
            event("fatal", List.of(), -1, error.toString());
            Runtime.getRuntime().halt(1); // other threads of the consumer would keep the process
        } finally {
            closed.countDown();
        }
    }

    private void leave(CountDownLatch closed) {
        stopping = true;
        try {
            closed.await();
        } catch (InterruptedException unexpected) {
            Thread.currentThread().interrupt();
        }
        Runtime.getRuntime().halt(clean ? 0 : 1);
    }

    private void poll() {
        for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(200))) {
            TopicPartition partition = new TopicPartition(r.topic(), r.partition());
            event("record", List.of(partition), r.offset(), "");
            read.put(partition, new OffsetAndMetadata(r.offset() + 1));
        }
        commit();
    }

    private void commit() {
        if (read.isEmpty()) {
            return;
        }
        try {
            consumer.commitSync(read);
        } catch (KafkaException error) {
            if (isFatal(error)) {
                throw error;
            } // else a rebalance overtook it; the next owner commits
            event("note", read.keySet(), -1, "commit: " + error);
            return;
        }
        read.forEach((partition, position) -> event("committed", List.of(partition), position.offset(), ""));
        read.clear();
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        event("assigned", partitions, -1, "");
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        commit();
        read.keySet().removeAll(partitions);
        event("revoked", partitions, -1, "");
    }

    // Without @Override: clients before 2.4 do not call it.
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        read.keySet().removeAll(partitions);
        event("revoked", partitions, -1, "lost");
    }

    private static boolean isFatal(KafkaException error) {
        return ANOTHER_HAS_THE_INSTANCE.contains(error.getClass().getSimpleName());
    }

    private static void event(String kind, Collection<TopicPartition> partitions, long offset, String text) {
        String numbers = partitions.stream().map(p -> Integer.toString(p.partition())).collect(Collectors.joining(","));
        String line = String.format(Locale.ROOT, "{\"event\":\"%s\",\"at\":%.6f,\"partitions\":[%s]%s%s}", kind,
            System.nanoTime() / 1e9, numbers, offset < 0 ? "" : ",\"offset\":" + offset,
            text.isEmpty() ? "" : ",\"text\":\"" + text.replaceAll("[\"\\\\\\p{Cntrl}]", "'") + "\"");
        System.out.println(line);
        System.out.flush();
    }
}
