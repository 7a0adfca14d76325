import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command line tools, many times in one JVM. A line of JSON in: {"main": class, "args": [...], "stdin": text}.
 * A line out, when the tool has ended: {"exit": status, "out": text, "err": text}.
 */
public final class Tools {
    private static final class Exited extends RuntimeException {}

    private static final ObjectMapper JSON = new ObjectMapper();
    private static final ByteArrayOutputStream OUT = new ByteArrayOutputStream();
    private static final ByteArrayOutputStream ERR = new ByteArrayOutputStream();
    private static final List<Runnable> HOOKS = new ArrayList<>();
    private static ObjectNode answer;

    public static void main(String[] unused) throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = System.out;
        // Once and for all: Scala's tools keep the stream that they found first.
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERR, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((code, message) -> exit(code));
        Exit.setHaltProcedure((code, message) -> exit(code));
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(JSON.writeValueAsString(call(JSON.readTree(line))));
            answers.flush();
        }
        System.exit(0);
    }

    private static void exit(int code) {
        end(code);
        throw new Exited();
    }

    /** What comes after the first end is of a tool that caught what ended it. */
    private static void end(int code) {
        if (answer == null) {
            answer = JSON.createObjectNode().put("exit", code);
            answer.put("out", OUT.toString(StandardCharsets.UTF_8)).put("err", ERR.toString(StandardCharsets.UTF_8));
        }
    }

    private static ObjectNode call(JsonNode request) throws Exception {
        answer = null;
        OUT.reset();
        ERR.reset();
        HOOKS.clear();
        System.setIn(new ByteArrayInputStream(request.get("stdin").asText().getBytes(StandardCharsets.UTF_8)));
        String[] args = JSON.convertValue(request.get("args"), String[].class);
        try {
            Class.forName(request.get("main").asText()).getMethod("main", String[].class).invoke(null, (Object) args);
            end(0);
        } catch (InvocationTargetException thrown) {
            if (answer == null) {
                // As the launcher of a JVM does.
                System.err.print("Exception in thread \"main\" ");
                thrown.getCause().printStackTrace();
                end(1);
            }
        }
        HOOKS.forEach(Runnable::run);
        return answer;
    }
}
