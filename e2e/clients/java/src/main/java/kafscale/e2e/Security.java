package kafscale.e2e;

import java.io.IOException;
import java.io.Reader;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;

/** How the client gets in: the properties file that --security names, in addition to the settings of the program. */
final class Security {
    private static final String TOKEN_ENDPOINT = "sasl.oauthbearer.token.endpoint.url";
    private static final String ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls";

    private Security() {}

    static Map<String, Object> added(Map<String, Object> config, Map<String, String> args) {
        Map<String, Object> all = new HashMap<>(config);
        if (args.containsKey("security")) {
            all.put("client.id", args.get("name"));
            Properties properties = read(Path.of(args.get("security")));
            properties.forEach((name, value) -> all.put((String) name, value));
            if (properties.containsKey(TOKEN_ENDPOINT)) { // the library refuses each address that is not in this list
                System.setProperty(ALLOWED, properties.getProperty(TOKEN_ENDPOINT));
            }
        }
        return all;
    }

    private static Properties read(Path file) {
        Properties properties = new Properties();
        try (Reader reader = Files.newBufferedReader(file)) {
            properties.load(reader);
        } catch (IOException unreadable) {
            throw new UncheckedIOException(unreadable);
        }
        return properties;
    }
}
