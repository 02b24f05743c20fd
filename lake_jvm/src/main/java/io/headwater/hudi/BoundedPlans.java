package io.headwater.hudi;

import java.util.ArrayList;
import java.util.List;
import org.apache.hudi.avro.model.HoodieCompactionOperation;
import org.apache.hudi.avro.model.HoodieCompactionPlan;
import org.apache.hudi.common.util.collection.Pair;
import org.apache.hudi.config.HoodieWriteConfig;
import org.apache.hudi.table.action.compact.strategy.LogFileNumBasedCompactionStrategy;

/**
 * Plans compactions that end soon: the file groups with the most log files come first, up to a limit of their cost.
 *
 * <p>Hudi's own limit does not count file groups below a megabyte, and counts one without a base file as the largest
 * possible.
 */
public final class BoundedPlans extends LogFileNumBasedCompactionStrategy {
    private static final double MOST = 64;

    @Override
    public Pair<List<HoodieCompactionOperation>, List<String>> orderAndFilter(
            HoodieWriteConfig config, List<HoodieCompactionOperation> operations, List<HoodieCompactionPlan> pending) {
        Pair<List<HoodieCompactionOperation>, List<String>> all = super.orderAndFilter(config, operations, pending);
        List<HoodieCompactionOperation> planned = new ArrayList<>();
        List<String> later = new ArrayList<>(all.getRight());
        double cost = 0;
        for (HoodieCompactionOperation operation : all.getLeft()) {
            if (cost >= MOST) {
                later.add(operation.getPartitionPath());
            } else {
                planned.add(operation);
                cost += cost(operation);
            }
        }
        return Pair.of(planned, later);
    }

    /** Whether a plan may have left file groups to the next plan. */
    static boolean isFull(HoodieCompactionPlan plan) {
        return plan.getOperations().stream().mapToDouble(BoundedPlans::cost).sum() >= MOST;
    }

    /** The cost of a file group: the megabytes to read, and one more for all other work. */
    private static double cost(HoodieCompactionOperation operation) {
        return megabytesToRead(operation) + 1;
    }

    /** Whole megabytes, as Hudi counts. */
    static double megabytesToRead(HoodieCompactionOperation operation) {
        return operation.getMetrics().get(TOTAL_IO_READ_MB);
    }
}
