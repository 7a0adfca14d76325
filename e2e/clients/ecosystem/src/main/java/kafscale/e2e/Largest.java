package kafscale.e2e;

import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Kafka Streams: the largest number of each remainder by ten. BOOTSTRAP ID FROM TO FOLDER
 *
 * <p>A new key needs a repartition topic, and the largest so far is a state with a changelog. A record that is read again
 * after a crash changes nothing, so the results are exact with at-least-once.
 */
public final class Largest {
  private Largest() {}

  public static void main(String[] args) {
    StreamsBuilder builder = new StreamsBuilder();
    KStream<String, String> numbers =
        builder.stream(args[2], Consumed.with(Serdes.String(), Serdes.String()));
    numbers
        .selectKey((key, value) -> String.valueOf(Long.parseLong(value) % 10))
        .mapValues(value -> Long.parseLong(value))
        .groupByKey(Grouped.with("by-remainder", Serdes.String(), Serdes.Long()))
        .reduce(Math::max, Materialized.as("largest"))
        .toStream()
        .mapValues(value -> String.valueOf(value))
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
    settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.String().getClass());
    settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.Long().getClass());
    settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 500);
    settings.put(StreamsConfig.REPARTITION_PURGE_INTERVAL_MS_CONFIG, 500);
    settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
    settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 6_000);
    settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG), 1_000);
    return settings;
  }
}
