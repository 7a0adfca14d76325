package kafscale.e2e;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Apache Kafka's transactional producer, which does what its standard input says; see e2e/clients/README.md. */
public final class Scripted {
    private final KafkaProducer<byte[], byte[]> producer;
    private final List<Future<RecordMetadata>> sent = new ArrayList<>();
    private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    private Scripted(Map<String, Object> config) {
        producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** The arguments are settings of the producer: NAME=VALUE. */
    public static void main(String[] argv) throws IOException, InterruptedException {
        Map<String, Object> config = new HashMap<>();
        for (String each : argv) {
            config.put(each.substring(0, each.indexOf('=')), each.substring(each.indexOf('=') + 1));
        }
        new Scripted(config).run();
    }

    private void run() throws IOException, InterruptedException {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                out.println("ok " + obey(line.split(" ")));
            } catch (KafkaException error) {
                out.println("error " + error.getClass().getSimpleName() + " " + error.getMessage());
            } catch (ExecutionException error) {
                out.println("error " + error.getCause().getClass().getSimpleName() + " " + error.getCause().getMessage());
            }
        }
        producer.close(Duration.ofSeconds(5));
    }

    /** The offsets of the records that `sent` confirms, else nothing. */
    private String obey(String[] words) throws ExecutionException, InterruptedException {
        switch (words[0]) {
            case "init" -> producer.initTransactions();
            case "begin" -> producer.beginTransaction();
            case "send" -> sent.add(producer.send(new ProducerRecord<>(words[1], Integer.parseInt(words[2]), null,
                words[3].getBytes(StandardCharsets.UTF_8))));
            case "sent" -> {
                return offsets();
            }
            case "offsets" -> producer.sendOffsetsToTransaction(
                Map.of(new TopicPartition(words[2], Integer.parseInt(words[3])),
                    new OffsetAndMetadata(Long.parseLong(words[4]))),
                new ConsumerGroupMetadata(words[1]));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            default -> throw new IllegalArgumentException(words[0]);
        }
        return "";
    }

    private String offsets() throws ExecutionException, InterruptedException {
        List<Future<RecordMetadata>> all = List.copyOf(sent);
        sent.clear();
        producer.flush();
        List<String> found = new ArrayList<>();
        for (Future<RecordMetadata> each : all) {
            found.add(Long.toString(each.get().offset()));
        }
        return String.join(" ", found);
    }
}
