package kafscale.e2e;

import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;

/**
 * Ends the process when the checkpoint is complete that has a certain number.
 *
 * <p>It must be in the first branch of the chain: operators learn of the checkpoint from the last to the first, and the
 * first branch before the next ones. So nothing of this task is committed yet.
 */
final class Precommitted implements MapFunction<String, String>, CheckpointedFunction, CheckpointListener {
  private static final long NONE = Long.MAX_VALUE;

  private final String last;
  private boolean seen;
  private long checkpoint = NONE;

  Precommitted(String last) {
    this.last = last;
  }

  @Override
  public String map(String number) {
    seen |= number.equals(last);
    return number;
  }

  @Override
  public void snapshotState(FunctionSnapshotContext context) {
    if (seen && checkpoint == NONE) {
      checkpoint = context.getCheckpointId();
    }
  }

  @Override
  public void initializeState(FunctionInitializationContext context) {}

  @Override
  public void notifyCheckpointComplete(long id) {
    if (id >= checkpoint) {
      Runtime.getRuntime().halt(137);
    }
  }
}
