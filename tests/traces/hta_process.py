"""Runs Holistic Trace Analysis on folders of traces, in its own environment, and prints what it finds as a line of JSON each.

Folders behind `--times` are of recordings without steps, of which times alone are asked for.
"""

import json
import logging
import os
import sys

os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"  # else it rounds every time to whole microseconds

from hta.trace_analysis import TraceAnalysis

logging.disable(logging.CRITICAL)
times_alone = False
for folder in sys.argv[1:]:
    if folder == "--times":
        times_alone = True
        continue
    analysis = TraceAnalysis(trace_dir=folder)
    if times_alone:
        temporal = analysis.get_temporal_breakdown(visualize=False).to_dict("records")
        overlap = analysis.get_comm_comp_overlap(visualize=False).to_dict("records")
        print(json.dumps({"temporal": temporal, "overlap": overlap}))
        continue
    kinds, kernels = analysis.get_gpu_kernel_breakdown(
        visualize=False, num_kernels=10_000, duration_ratio=1.0, include_memory_kernels=True
    )
    copies = analysis.get_memory_bw_summary(ranks=[0])
    path, whole = analysis.critical_path_analysis(rank=0, annotation="ProfilerStep", instance_id=0)
    print(
        json.dumps(
            {
                "temporal": analysis.get_temporal_breakdown(visualize=False).to_dict("records"),
                "overlap": analysis.get_comm_comp_overlap(visualize=False).to_dict("records"),
                "kernels": kernels.to_dict("records"),
                "idle": analysis.get_idle_time_breakdown(ranks=[0], visualize=False)[0].to_dict("records"),
                "launches": len(analysis.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)[0]),
                "queues": len(analysis.get_queue_length_summary(ranks=[0])),
                "bandwidths": {}
                if copies is None
                else {name: mean for (_, name), mean in copies["memory_bw_gbps"]["mean"].items()},
                "critical_us": sum(edge.weight for edge in path.critical_path_edges_set) if whole else None,
            }
        )
    )
