package kafscale.e2e;

import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;

/**
 * KafkaTemplate.executeInTransaction: writes the numbers below COUNT, each in a transaction. BOOTSTRAP TO COUNT
 *
 * <p>Every third of them is written, and then an exception aborts its transaction.
 */
public final class Templates {
  private Templates() {}

  public static void main(String[] args) {
    DefaultKafkaProducerFactory<String, String> producers = Settings.producers(args[0], args[1]);
    KafkaTemplate<String, String> template = new KafkaTemplate<>(producers);
    int refused = 0;
    int count = Integer.parseInt(args[2]);
    for (int number = 0; number < count; number++) {
      String value = String.valueOf(number);
      boolean refuse = number % 3 == 2;
      try {
        template.executeInTransaction(
            operations -> {
              operations.send(args[1], value);
              operations.flush();
              if (refuse) {
                throw new IllegalStateException(value);
              }
              return null;
            });
      } catch (IllegalStateException expected) {
        refused++;
      }
    }
    producers.destroy();
    if (refused != count / 3) {
      throw new AssertionError(refused + " were refused");
    }
  }
}
