import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.List;
import java.util.function.Supplier;
import java.util.stream.Collectors;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.requests.ProduceResponse.RecordError;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * What a broker says of batches: ProduceRequest's checks, those of UnifiedLog, and LogValidator.
 *
 * A line in: `compacted appendTime now before after hex`. A line out: `code maxTimestamp indexes`, where maxTimestamp is
 * the largest time that the validator found, and indexes those of the records that it names, joined by commas.
 */
public final class Batches {
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);
    private static final short VERSION = 9;

    private static final LogValidator.MetricsRecorder METRICS = new LogValidator.MetricsRecorder() {
        @Override public void recordInvalidMagic() { }
        @Override public void recordInvalidOffset() { }
        @Override public void recordInvalidSequence() { }
        @Override public void recordInvalidChecksums() { }
        @Override public void recordNoKeyCompactedTopic() { }
    };

    private record Stopped(long milliseconds) implements Time {
        @Override public long nanoseconds() { return 0; }
        @Override public void sleep(long ms) { throw new UnsupportedOperationException(); }
        @Override public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine())
            System.out.println(verdict(line.split(" ")));
    }

    private static String verdict(String[] asked) {
        try {
            return "0 " + largest(asked) + " -";
        } catch (RecordValidationException refused) {
            List<RecordError> errors = refused.recordErrors();
            String indexes = errors.stream().map(e -> "" + e.batchIndex).collect(Collectors.joining(","));
            return Errors.forException(refused.invalidException()).code() + " -1 " + indexes;
        } catch (Throwable refused) {
            if (System.getenv("DEBUG") != null) System.err.println(refused);
            return Errors.forException(refused).code() + " -1 -";
        }
    }

    private static long largest(String[] asked) {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(asked[5])));
        ProduceRequest.validateRecords(VERSION, records);
        CompressionType source = CompressionType.NONE;
        for (MutableRecordBatch batch : records.batches()) {
            if (batch.baseOffset() != 0)
                throw Errors.INVALID_RECORD.exception();
            batch.ensureValid();
            source = batch.compressionType();
        }
        TimestampType kind = asked[1].equals("1") ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
        Time time = new Stopped(Long.parseLong(asked[2]));
        LogValidator validator = new LogValidator(records, PARTITION, time, source, Compression.of(source).build(),
            asked[0].equals("1"), RecordBatch.CURRENT_MAGIC_VALUE, kind, Long.parseLong(asked[3]),
            Long.parseLong(asked[4]), 0, AppendOrigin.CLIENT);
        LogValidator.ValidationResult found = validator.validateMessagesAndAssignOffsets(
            PrimitiveRef.ofLong(0), METRICS, BufferSupplier.NO_CACHING);
        return found.validatedRecords().batches().iterator().next().maxTimestamp();
    }
}
