"""Attributes of our own beside Chakra's: what writes them and what reads them agree on their names here.

Nodes say what a kernel does by its number in a list that the file's metadata holds, so that equal kernels are written once.
"""

from __future__ import annotations

DEVICE_KIND = "device_kind"  # of the metadata: gpu or tpu, for which kernels were fused
KERNELS = "kernels"  # of the metadata: everything the cost of a kernel depends on, as texts of JSON
KERNEL = "kernel"  # of a node: its place in that list, counted from 0
BEGINS = "begins"  # of a node: the first of a program, whose host begins with it
LEAST, UNTIL = (
    "least_ns",
    "until_ns",
)  # of a wait: lasts so long at least, and ends that long behind its program's begin
FIRST_JOB_STREAM = (
    100  # streams from here on are a job's own (sums of gradients, messages of a pipeline), not a program's
)
