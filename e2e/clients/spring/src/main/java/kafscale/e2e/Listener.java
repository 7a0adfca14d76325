package kafscale.e2e;

import java.util.HashSet;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.DefaultAfterRollbackProcessor;
import org.springframework.kafka.listener.KafkaMessageListenerContainer;
import org.springframework.kafka.listener.MessageListener;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.util.backoff.FixedBackOff;

/**
 * A listener container with a KafkaTransactionManager that copies a topic exactly once, each record and its offset in a
 * transaction. BOOTSTRAP GROUP FROM TO
 *
 * <p>Of every ten records the listener writes one, and then refuses it when it comes for the first time.
 */
public final class Listener {
  private Listener() {}

  public static void main(String[] args) {
    DefaultKafkaProducerFactory<String, String> producers = Settings.producers(args[0], args[1]);
    KafkaTemplate<String, String> template = new KafkaTemplate<>(producers);
    Set<String> refused = new HashSet<>();

    ContainerProperties properties = new ContainerProperties(args[2]);
    properties.setGroupId(args[1]);
    properties.setKafkaAwareTransactionManager(new KafkaTransactionManager<>(producers));
    properties.setMessageListener(
        (MessageListener<String, String>)
            (ConsumerRecord<String, String> record) -> {
              template.send(args[3], record.partition(), record.key(), record.value());
              if (record.value().endsWith("9") && refused.add(record.value())) {
                template.flush();
                throw new IllegalStateException(record.value());
              }
            });
    KafkaMessageListenerContainer<String, String> container =
        new KafkaMessageListenerContainer<>(Settings.consumers(args[0]), properties);
    container.setAfterRollbackProcessor(
        new DefaultAfterRollbackProcessor<>(new FixedBackOff(0, FixedBackOff.UNLIMITED_ATTEMPTS)));
    Runtime.getRuntime()
        .addShutdownHook(
            new Thread(
                () -> {
                  container.stop();
                  producers.destroy();
                }));
    container.start();
  }
}
