package kafscale.e2e;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Apache Kafka's Java client as a client of the matrix; see e2e/clients/README.md. */
public final class Client {
    private static final long FIRST_TIMESTAMP = 1_700_000_000_000L;
    private final Map<String, String> args = new HashMap<>();

    public static void main(String[] argv) throws Exception {
        Client client = new Client();
        for (int i = 0; i < argv.length; i += 2) {
            client.args.put(argv[i].substring(2), argv[i + 1]);
        }
        switch (client.args.get("mode")) {
            case "produce" -> client.produce();
            case "group" -> new Group(client.args).run();
            default -> client.consume();
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private ProducerRecord<byte[], byte[]> record(int i) {
        String key = args.get("name") + "-" + args.get("codec") + "-" + i;
        List<Header> headers = List.of(
            new RecordHeader("client", bytes(args.get("name"))), new RecordHeader("n", bytes(Integer.toString(i))));
        return new ProducerRecord<>(args.get("topic"), null, FIRST_TIMESTAMP + i, bytes(key),
            bytes(key + ":" + "x".repeat(i % 200)), headers);
    }

    private void produce() throws Exception {
        Map<String, Object> config = Security.added(Map.of("bootstrap.servers", args.get("bootstrap"), "linger.ms", 5,
            "compression.type", args.get("codec")), args);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int i = 0; i < Integer.parseInt(args.get("count")); i++) {
                sent.add(producer.send(record(i)));
            }
            for (Future<RecordMetadata> each : sent) {
                each.get();
            }
        }
    }

    private void consume() {
        Map<String, Object> config = Security.added(
            Map.of("bootstrap.servers", args.get("bootstrap"), "auto.offset.reset", "earliest",
                "isolation.level", args.getOrDefault("isolation", "read_uncommitted")), args);
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        try (var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (int p = 0; p < Integer.parseInt(args.get("partitions")); p++) {
                partitions.add(new TopicPartition(args.get("topic"), p));
            }
            consumer.assign(partitions);
            int left = Integer.parseInt(args.get("count"));
            while (left > 0) {
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofSeconds(1))) {
                    print(out, r);
                    left--;
                }
            }
        }
        out.flush();
    }

    private static void print(PrintStream out, ConsumerRecord<byte[], byte[]> r) {
        Base64.Encoder base64 = Base64.getEncoder();
        StringBuilder headers = new StringBuilder();
        for (Header h : r.headers()) {
            headers.append(headers.isEmpty() ? "" : ",")
                .append("[\"").append(h.key()).append("\",\"").append(base64.encodeToString(h.value())).append("\"]");
        }
        out.println("{\"partition\":" + r.partition() + ",\"offset\":" + r.offset() + ",\"timestamp\":" + r.timestamp()
            + ",\"key\":\"" + base64.encodeToString(r.key()) + "\",\"value\":\"" + base64.encodeToString(r.value())
            + "\",\"headers\":[" + headers + "]}");
    }
}
