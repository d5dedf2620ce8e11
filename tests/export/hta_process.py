"""Runs Holistic Trace Analysis on a folder of traces, in its own environment, and prints what it finds as JSON."""

import json
import logging
import os
import sys

os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"  # else it rounds every time to whole microseconds

from hta.trace_analysis import TraceAnalysis

logging.disable(logging.CRITICAL)
analysis = TraceAnalysis(trace_dir=sys.argv[1])
kinds, kernels = analysis.get_gpu_kernel_breakdown(
    visualize=False, num_kernels=10_000, duration_ratio=1.0, include_memory_kernels=True
)
print(
    json.dumps(
        {
            "temporal": analysis.get_temporal_breakdown(visualize=False).to_dict("records"),
            "overlap": analysis.get_comm_comp_overlap(visualize=False).to_dict("records"),
            "kernels": kernels.to_dict("records"),
        }
    )
)
