import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;

/**
 * Reads messages by Apache Kafka's own codec. A line in: API key, version, "request" or "response", and the body in hexadecimal. A line out: the body as Kafka writes what
 * it has read, a space, and the message in Kafka's words; or nothing if this Kafka does not know the version.
 */
public final class Codec {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", 4);
            answers.println(read(ApiKeys.forId(Integer.parseInt(words[0])), Short.parseShort(words[1]), words[2].equals("request"), words[3]));
        }
        answers.flush();
    }

    private static String read(ApiKeys key, short version, boolean request, String hex) {
        if (!key.isVersionSupported(version)) {
            return "";
        }
        ApiMessage message = request ? key.messageType.newRequest() : key.messageType.newResponse();
        ByteBuffer body = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
        message.read(new ByteBufferAccessor(body), version);
        if (body.hasRemaining()) {
            throw new IllegalStateException(key + " v" + version + ": " + body.remaining() + " bytes are left");
        }
        ByteBuffer written = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] bytes = new byte[written.remaining()];
        written.get(bytes);
        return HexFormat.of().formatHex(bytes) + " " + message;
    }
}
