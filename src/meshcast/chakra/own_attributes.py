"""Attributes of our own beside Chakra's: what writes them and what reads them agree on them here.

Nodes say what a kernel does by its number in a list that the file's metadata holds, so that equal kernels are written once;
packed, as every rank's file has it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

RECORDED_ON = "recorded_on"  # of the metadata: what the driver calls the device that a job ran on
DEVICE_KIND = "device_kind"  # of the metadata: gpu or tpu, for which kernels were fused
KERNELS = "kernels"  # of the metadata: everything the cost of each kernel depends on, a list of objects of JSON, packed
KERNEL = "kernel"  # of a node: its place in that list, counted from 0
BEGINS = "begins"  # of a node: the first of a program, whose host begins with it
# Of a wait: how long it lasts at least, and how long behind its program's begin it ends at the earliest.
LEAST, UNTIL = "least_ns", "until_ns"
# Of a node of the host's: bytes that it moves between the device and its host's memory, of all launches.
HOST_BYTES = "host_bytes"
COPYING_THREAD = 1  # of the host: copies are beside its other work
# Streams from here on are a job's own (sums of gradients, messages of a pipeline), not those of a program.
FIRST_JOB_STREAM = 100
MOST_PACKED_OUT = 1 << 28  # bytes that a list of kernels may have when it is unpacked


def packed_kernels(kernels: Sequence[dict[str, Any]]) -> bytes:
    """A list of kernels as the metadata has it."""
    return zlib.compress(json.dumps(kernels, separators=(",", ":")).encode(), 9)


def unpacked_kernels(packed: bytes) -> list[dict[str, Any]]:
    """The kernels from the bytes that `packed_kernels` made of them.

    Raises:
        ValueError: They hold no list of kernels.
    """
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(packed, MOST_PACKED_OUT)
    except zlib.error as error:
        raise ValueError(f"cannot be unpacked ({error})") from None
    if not unpacking.eof:
        raise ValueError(f"is cut off, or more than {MOST_PACKED_OUT} bytes")
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ValueError("holds no list of objects")
    return found
