package kafscale.e2e;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExternalizedCheckpointRetention;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.configuration.StateRecoveryOptions;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/**
 * A Flink job that copies a topic exactly once, to a topic for each way to name transactions. BOOTSTRAP FROM FOLDER LAST
 *
 * <p>It goes on at the last checkpoint of the folder. When LAST was read, the process ends like after kill -9, between a
 * checkpoint that has LAST and the commit of its transactions: the next process has to commit them. The topics are
 * FROM-incrementing and FROM-pooling.
 */
public final class Copies {
  private static final int TASKS = 2;

  private Copies() {}

  public static void main(String[] args) throws Exception {
    Path folder = Path.of(args[2]);
    StreamExecutionEnvironment flink = StreamExecutionEnvironment.getExecutionEnvironment(settings(folder));
    flink.setParallelism(TASKS);
    DataStream<String> numbers =
        flink.fromSource(source(args[0], args[1]), WatermarkStrategy.noWatermarks(), "numbers").uid("numbers");
    numbers.map(new Precommitted(args[3])).uid("precommitted").sinkTo(new DiscardingSink<>()).uid("nowhere");
    for (TransactionNamingStrategy naming : TransactionNamingStrategy.values()) {
      String to = args[1] + "-" + naming.name().toLowerCase();
      numbers.sinkTo(sink(args[0], to, naming)).uid(to);
    }
    flink.execute("copies");
  }

  private static Configuration settings(Path folder) throws IOException {
    Configuration settings = new Configuration();
    settings.set(CheckpointingOptions.CHECKPOINTING_INTERVAL, Duration.ofSeconds(1));
    settings.set(CheckpointingOptions.CHECKPOINT_STORAGE, "filesystem");
    settings.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, folder.toUri().toString());
    settings.set(
        CheckpointingOptions.EXTERNALIZED_CHECKPOINT_RETENTION,
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION);
    settings.set(RestartStrategyOptions.RESTART_STRATEGY, "fixed-delay");
    settings.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_ATTEMPTS, Integer.MAX_VALUE);
    settings.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_DELAY, Duration.ofSeconds(1));
    last(folder).ifPresent(path -> settings.set(StateRecoveryOptions.SAVEPOINT_PATH, path.toUri().toString()));
    return settings;
  }

  /** The last checkpoint that is complete. A job that goes on at one counts on from its number. */
  private static Optional<Path> last(Path folder) throws IOException {
    Files.createDirectories(folder);
    try (Stream<Path> found = Files.walk(folder, 3)) {
      return found
          .filter(path -> path.endsWith("_metadata"))
          .map(Path::getParent)
          .max(Comparator.comparingLong(path -> Long.parseLong(path.getFileName().toString().substring("chk-".length()))));
    }
  }

  private static KafkaSource<String> source(String bootstrap, String from) {
    return KafkaSource.<String>builder()
        .setBootstrapServers(bootstrap)
        .setTopics(from)
        .setGroupId(from)
        .setStartingOffsets(OffsetsInitializer.earliest())
        .setValueOnlyDeserializer(new SimpleStringSchema())
        .build();
  }

  /** The timeout is longer than the test, so that what is left open must be ended by Flink. */
  private static KafkaSink<String> sink(String bootstrap, String to, TransactionNamingStrategy naming) {
    return KafkaSink.<String>builder()
        .setBootstrapServers(bootstrap)
        .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .setTransactionalIdPrefix(to)
        .setTransactionNamingStrategy(naming)
        .setProperty("transaction.timeout.ms", "900000")
        .setRecordSerializer(
            KafkaRecordSerializationSchema.<String>builder()
                .setTopic(to)
                .setValueSerializationSchema(new SimpleStringSchema())
                .build())
        .build();
  }
}
