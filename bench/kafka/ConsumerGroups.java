import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.tools.consumer.group.ConsumerGroupCommand;

/** kafka-consumer-groups.sh, many times in one JVM: a line of arguments in, what it prints and a line "\u0004" out. */
public final class ConsumerGroups {
    private static final class Exited extends RuntimeException {}

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure((status, message) -> {
            throw new Exited();
        });
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                ConsumerGroupCommand.main(line.split(" "));
            } catch (Exited exited) {
                System.out.println("exited");
            }
            System.err.flush();
            System.out.println("\u0004");
            System.out.flush();
        }
    }
}
