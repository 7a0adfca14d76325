package kafscale.e2e;

import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Kafka Streams with exactly_once_v2: how many numbers there are of each remainder by ten. BOOTSTRAP ID FROM TO FOLDER
 *
 * <p>Each change of a count is a record REMAINDER:COUNT. A record that is counted twice, or never, makes the count wrong
 * for ever.
 */
public final class Counts {
  private Counts() {}

  public static void main(String[] args) {
    StreamsBuilder builder = new StreamsBuilder();
    builder.stream(args[2], Consumed.with(Serdes.String(), Serdes.String()))
        .selectKey((key, value) -> String.valueOf(Long.parseLong(value) % 10))
        .groupByKey(Grouped.with("of-remainder", Serdes.String(), Serdes.String()))
        .count(Materialized.as("counts"))
        .toStream()
        .map((key, count) -> new KeyValue<>(key, key + ":" + count))
        .to(args[3], Produced.with(Serdes.String(), Serdes.String()));

    KafkaStreams streams = new KafkaStreams(builder.build(), settings(args));
    streams.setUncaughtExceptionHandler(
        failure -> {
          failure.printStackTrace();
          return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
    Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
    streams.start();
  }

  private static Properties settings(String[] args) {
    Properties settings = new Properties();
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
    settings.put(StreamsConfig.STATE_DIR_CONFIG, args[4]);
    settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.String().getClass());
    settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.String().getClass());
    settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
    settings.put(StreamsConfig.producerPrefix(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG), 10_000);
    settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
    settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 6_000);
    settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG), 1_000);
    return settings;
  }
}
