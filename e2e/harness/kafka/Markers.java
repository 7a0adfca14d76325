import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;

/**
 * The markers of transactions, as a broker writes them.
 *
 * A line in: `commit coordinatorEpoch producerId producerEpoch timestamp`, commit as 1 or 0. A line out: the batch at offset 0, in hexadecimal.
 */
public final class Markers {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine())
            System.out.println(marker(line.split(" ")));
    }

    private static String marker(String[] asked) {
        ControlRecordType type = asked[0].equals("1") ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        EndTransactionMarker marker = new EndTransactionMarker(type, Integer.parseInt(asked[1]));
        MemoryRecords records = MemoryRecords.withEndTransactionMarker(
            Long.parseLong(asked[4]), Long.parseLong(asked[2]), Short.parseShort(asked[3]), marker);
        ByteBuffer buffer = records.buffer();
        byte[] batch = new byte[buffer.remaining()];
        buffer.get(batch);
        return HexFormat.of().formatHex(batch);
    }
}
