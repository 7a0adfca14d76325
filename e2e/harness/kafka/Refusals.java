import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;

/**
 * The error answers of Apache Kafka's own requests. A line in: API key, version, error code, and the request's body in hexadecimal. A line out: the answer's body, or
 * nothing if this Kafka has no answer, because it does not know the version.
 */
public final class Refusals {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", 4);
            answers.println(answer(ApiKeys.forId(Integer.parseInt(words[0])), Short.parseShort(words[1]), Errors.forCode(Short.parseShort(words[2])), words[3]));
        }
        answers.flush();
    }

    private static String answer(ApiKeys key, short version, Errors error, String hex) {
        if (!key.isVersionSupported(version)) {
            return "";
        }
        ByteBuffer body = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
        AbstractRequest request = AbstractRequest.parseRequest(key, version, new ByteBufferAccessor(body)).request;
        AbstractResponse answer = request.getErrorResponse(0, error.exception());
        ByteBuffer bytes = MessageUtil.toByteBufferAccessor(answer.data(), version).buffer();
        byte[] found = new byte[bytes.remaining()];
        bytes.get(found);
        return HexFormat.of().formatHex(found);
    }
}
