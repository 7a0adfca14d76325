package kafscale.e2e;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Copies one topic to another exactly once, as the documentation of Apache Kafka's producer shows it: what it has read,
 * and how far it has read, are one transaction. It goes on after every error. See e2e/clients/README.md.
 */
public final class Copier {
    private static final Duration WAIT = Duration.ofMillis(200);
    private final Map<String, String> args = new HashMap<>();
    private KafkaProducer<byte[], byte[]> producer;
    private volatile boolean stopping;

    public static void main(String[] argv) throws Exception {
        Copier copier = new Copier();
        for (int i = 0; i < argv.length; i += 2) {
            copier.args.put(argv[i].substring(2), argv[i + 1]);
        }
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            copier.stopping = true;
            try {
                main.join();
            } catch (InterruptedException unexpected) {
                Thread.currentThread().interrupt();
            }
        }));
        while (!copier.stopping) {
            copier.session();
        }
    }

    /** Until an error. The next session's initTransactions aborts what this one has left open. */
    private void session() {
        Map<String, Object> reads = Map.of("bootstrap.servers", args.get("bootstrap"), "group.id", args.get("group"),
            "group.protocol", args.get("protocol"), "enable.auto.commit", false, "isolation.level", "read_committed",
            "auto.offset.reset", "earliest", "max.poll.records", 50);
        Map<String, Object> writes = Map.of("bootstrap.servers", args.get("bootstrap"), "linger.ms", 5,
            "transactional.id", args.get("id"), "transaction.timeout.ms", 10_000, "max.block.ms", 20_000,
            "delivery.timeout.ms", 15_000, "request.timeout.ms", 10_000);
        producer = new KafkaProducer<>(writes, new ByteArraySerializer(), new ByteArraySerializer());
        try (var consumer = new KafkaConsumer<>(reads, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(args.get("from")));
            while (!stopping) {
                copy(consumer);
            }
        } catch (KafkaException fatal) {
            System.out.println("again " + fatal);
        } finally {
            producer.close(Duration.ofSeconds(1));
        }
    }

    private void copy(KafkaConsumer<byte[], byte[]> consumer) {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(WAIT);
        if (records.isEmpty()) {
            return;
        }
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> each : records) {
            producer.send(new ProducerRecord<>(args.get("to"), each.partition(), each.key(), each.value()));
            ends.put(new TopicPartition(each.topic(), each.partition()), new OffsetAndMetadata(each.offset() + 1));
        }
        producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
        producer.commitTransaction();
        System.out.println("copied " + records.count());
    }
}
