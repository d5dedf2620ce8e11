"""Fused attention on Blackwell and Hopper beside cuDNN's times that NVIDIA published (`data/published/attention.csv`)."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meshcast.estimate.gpu.estimator import GpuAnalytical
from meshcast.estimate.measurements.calls import backward_kernel
from meshcast.estimate.measurements.silicon_kernels import attention_kernel
from meshcast.hardware import load_device
from meshcast.lower import Kernel
from meshcast.lower.frameworks.narrow_attention import NARROW
from meshcast.workload.graph import Attention

PUBLISHED = Path(__file__).resolve().parents[3] / "data" / "published" / "attention.csv"
FITTED = ("llama3.1",)  # what the shares were set on
LONGEST = 18_000  # longer calls, ten in a row, run into the power limit, which a kernel alone does not know of
Row = Mapping[str, str]


def published(wanted: Callable[[Row], bool]) -> Iterator[Row]:
    with PUBLISHED.open(newline="") as file:
        yield from (row for row in csv.DictReader(file) if int(row["q_len"]) <= LONGEST and wanted(row))


def kernel_of(row: Row) -> Kernel:
    shape = Attention(
        batch=int(row["batch"]),
        heads=int(row["heads"]),
        kv_heads=int(row["kv_heads"]),
        q_len=int(row["q_len"]),
        kv_len=int(row["kv_len"]),
        head_dim=int(row["head_dim"]),
        window=int(row["window"]),
        dtype="bf16",
        causal=row["causal"] == "1",
        backward=False,
    )
    keys, values = shape.head_dim, int(row["value_dim"])
    kernel, useful = attention_kernel(shape), (keys + values) / (2 * keys)
    if row["direction"] == "backward":
        kernel = backward_kernel(kernel, replace(shape, backward=True))
        useful = (3 * keys + 2 * values) / (5 * keys)
    kernel = replace(kernel, matrix_flops=kernel.matrix_flops * useful)
    if row["dtype"] == "bf16":
        return kernel
    assert isinstance(kernel.geometry, Attention)
    return replace(kernel, dtype=NARROW, geometry=replace(kernel.geometry, dtype=NARROW))


def distances(wanted: Callable[[Row], bool]) -> np.ndarray:
    """ln(measured / predicted) of the rows."""
    found = [
        math.log(
            float(row["ms"])
            * 1e-3
            / float(GpuAnalytical().estimate([kernel_of(row)], load_device(row["device"])).time[0])
        )
        for row in published(wanted)
    ]
    assert found
    return np.array(found)


@pytest.mark.parametrize("device", ["gb200", "gb300"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_models_that_blackwells_shares_were_not_set_on(device: str, direction: str) -> None:
    """bf16, whole masks and causal ones, heads of 128, 192 and 256: within 7 % in the mean, without a bias above 6 %."""
    found = distances(
        lambda row: (
            row["device"] == device and row["direction"] == direction and row["dtype"] == "bf16" and row["window"] == "0"
            and row["model"] not in FITTED
        )
    )  # fmt: skip
    assert np.abs(found).mean() < 0.07
    assert abs(found.mean()) < 0.06


@pytest.mark.parametrize("device", ["gb200", "gb300"])
def test_windows_leave_nothing_out_backward_in_eight_bits(device: str) -> None:
    """GPT-OSS's layers of 128 keys, on which nothing was set: as slow as whole ones, 4 to 20 times their useful work."""
    found = distances(
        lambda row: (
            row["device"] == device
            and row["dtype"] == "fp8"
            and row["direction"] == "backward"
            and row["window"] != "0"
        )
    )
    assert np.abs(found).mean() < 0.1


@pytest.mark.parametrize("device", ["gb200", "gb300"])
def test_backward_in_eight_bits_is_bound_by_its_scores(device: str) -> None:
    """Kimi K2.6, on which nothing was set: heads of 192 take as long a score as heads of 128."""
    found = distances(
        lambda row: (
            row["device"] == device and row["dtype"] == "fp8" and row["direction"] == "backward" and row["model"] == "kimiK26"
        )
    )  # fmt: skip
    assert np.abs(found).mean() < 0.08


def test_hopper_gains_nothing_backward_in_eight_bits() -> None:
    """An H200 without a mask, on which nothing of 8 bits was set."""
    found = distances(
        lambda row: (
            row["device"] == "h200" and row["dtype"] == "fp8" and row["direction"] == "backward" and row["causal"] == "0"
        )
    )  # fmt: skip
    assert np.abs(found).mean() < 0.08


def test_an_h200_in_bf16() -> None:
    """What was measured there by others, with a later cuDNN: within 5 %."""
    assert np.abs(distances(lambda row: row["device"] == "h200" and row["dtype"] == "bf16")).mean() < 0.05
