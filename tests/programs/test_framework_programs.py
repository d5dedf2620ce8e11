"""Recordings as StableHLO: what is written is read again as the same launches, memory and host work, and predicted."""

from __future__ import annotations

from typing import Any

import pytest

import meshcast
from meshcast.jobs import predict
from meshcast.lower import KernelKind, LoweredProgram
from meshcast.options import Options
from meshcast.programs.pytorch.eager.allocator import eager_peak
from meshcast.programs.pytorch.eager.kernels import eager_launches
from meshcast.programs.pytorch.launches.emission import stablehlo_of
from meshcast.programs.pytorch.launches.host_work import eager_host
from meshcast.programs.pytorch.recording.calls import Recording, View
from meshcast.workload import Convolution, Gemm
from tests.programs.recordings import call, dense, recording


def text(step: Recording) -> str:
    launches = [launch for i, op in enumerate(step.ops) for launch in eager_launches(op, i)]
    return stablehlo_of(step, launches, memory=eager_peak(step), host=eager_host(step, launches))


def lowered(step: Recording) -> LoweredProgram:
    return meshcast.load(text(step).encode()).workload().lower()


BF16 = "bfloat16"


def test_bytes_are_those_of_the_operands() -> None:
    x, y, out = (dense(i, 1024, 1024, dtype=BF16) for i in range(3))
    step = recording(call("add", (x, y), (out,)), held={0: "input", 1: "input"}, returned=(out,))
    (kernel,) = (kernel for kernel, _ in lowered(step).schedule.walk())
    assert (kernel.kind, kernel.read_bytes, kernel.written_bytes) == (KernelKind.LOOP_FUSION, 4 << 20, 2 << 20)


def test_a_fill_reads_nothing_and_a_repeated_operand_is_read_once() -> None:
    out = dense(0, 1024, 1024)
    repeated, total = View(1, (1024, 1024), (0, 1), "float32"), dense(2, 1024, 1024)
    fill = recording(
        call("fill_", (out,), (out,)),
        call("add", (out, repeated), (total,)),
        held={0: "buffer", 1: "input"},
        returned=(total,),
    )
    first, second = (kernel for kernel, _ in lowered(fill).schedule.walk())
    assert (first.read_bytes, first.written_bytes) == (4, 4 << 20)  # the number alone
    assert second.read_bytes == (4 << 20) + 4096


def test_products_run_in_full_precision_and_convolutions_may_not() -> None:
    x, w = dense(0, 128, 64), dense(1, 64, 32)
    out = dense(2, 128, 32)
    step = recording(call("mm", (x, w), (out,)), held={0: "input", 1: "parameter"}, returned=(out,))
    (product,) = (kernel for kernel, _ in lowered(step).schedule.walk())
    shape = product.geometry
    assert isinstance(shape, Gemm)
    assert (shape.m, shape.n, shape.k, shape.precision, shape.padded) == (128, 32, 64, "HIGHEST", False)


@pytest.mark.parametrize("groups", [1, 8])
def test_the_passes_of_a_convolution_do_the_same_work(groups: int) -> None:
    image, weight, out = dense(0, 4, 16, 28, 28), dense(1, 32, 16 // groups, 3, 3), dense(2, 4, 32, 14, 14)
    told: dict[str, Any] = {"stride": (2, 2), "padding": (1, 1), "dilation": (1, 1), "groups": groups}
    step = recording(
        call("convolution", (image, weight), (out,), **told),
        call(
            "convolution_backward", (out, image, weight), (dense(3, 4, 16, 28, 28), dense(4, 32, 16 // groups, 3, 3)),
            phase="backward", output_mask=(True, True, False), **told,
        ),
        held={0: "input", 1: "parameter"}, returned=(dense(3, 4, 16, 28, 28), dense(4, 32, 16 // groups, 3, 3)),
    )  # fmt: skip
    forward, data, filters = (kernel.geometry for kernel, _ in lowered(step).schedule.walk())
    counts = [shape.macs for shape in (forward, data, filters) if isinstance(shape, Convolution)]
    assert len(set(counts)) == 1


def test_memory_and_host_of_the_recording_are_the_programs() -> None:
    x, a, b = (dense(i, 1 << 20) for i in range(3))
    step = recording(call("relu", (x,), (a,)), call("relu", (a,), (b,)), held={0: "input"}, returned=(b,))
    found = predict(meshcast.load(text(step).encode()), Options(on="h200", levers=False))
    assert (found.memory.arguments, found.memory.temporaries) == (4 << 20, 8 << 20)
    assert found.kernels == 2
    fast = predict(meshcast.load(text(step).encode()), Options(on="h200", levers=False, host="fast"))
    alone = predict(meshcast.load(text(step).encode()), Options(on="h200", levers=False, host="off"))
    assert found.step_time_s is not None
    assert fast.step_time_s is not None
    assert alone.step_time_s is not None
    assert found.step_time_s == pytest.approx(2 * 22.5e-6, rel=0.01)  # two calls of 16.5 and 6 us
    assert found.step_time_s > fast.step_time_s > alone.step_time_s


def test_intervals_are_the_hosts_where_it_is_waited_for_and_the_devices_where_it_is_not() -> None:
    """A host 1.7 times faster or slower moves both ends of a step of small kernels, and neither of one of large ones."""

    def ends(elements: int) -> tuple[float, float]:
        x, a, b = (dense(i, elements) for i in range(3))
        step = recording(call("relu", (x,), (a,)), call("relu", (a,), (b,)), held={0: "input"}, returned=(b,))
        found = predict(meshcast.load(text(step).encode()), Options(on="h200", levers=False))
        assert found.interval_s is not None
        assert found.step_time_s is not None
        return found.interval_s[0] / found.step_time_s, found.interval_s[1] / found.step_time_s

    assert ends(1 << 10) == pytest.approx((1 / 1.7, 1.7), rel=0.01)
    low, high = ends(1 << 30)
    assert 0.6 < low < 1 / 1.14
    assert 1.14 < high < 1.6


def test_rows_down_columns_and_attention_are_read() -> None:
    query = dense(0, 2, 8, 256, 64, dtype=BF16)
    out, small = dense(1, 2, 8, 256, 64, dtype=BF16), dense(2, 2, 8, 256, 1)
    table, rows = dense(5, 1000, 64), dense(6, 512, dtype="int64")
    step = recording(
        call("_scaled_dot_product_cudnn_attention", (query,) * 3, (out, small), places=("query", "key", "value"), is_causal=True),
        call("sum", (query,), (dense(3, 64, dtype=BF16),), dim=(0, 1, 2)),
        call("embedding", (table, rows), (dense(7, 512, 64),)),
        call("embedding_dense_backward", (dense(7, 512, 64), rows), (dense(8, 1000, 64),), phase="backward"),
        held={0: "input", 5: "parameter", 6: "input"}, returned=(out, dense(3, 64, dtype=BF16), dense(8, 1000, 64)),
    )  # fmt: skip
    kinds = [kernel.kind for kernel, _ in lowered(step).schedule.walk()]
    assert kinds == [
        KernelKind.ATTENTION,
        KernelKind.LOOP_FUSION,  # zeros that the sum's parts are counted from
        KernelKind.LOOP_FUSION,
        KernelKind.GATHER,
        KernelKind.LOOP_FUSION,  # zeros, and a kernel that goes through all indices
        KernelKind.LOOP_FUSION,
    ]


@pytest.mark.parametrize("fidelity", ["analytical", "profiled"])
def test_sums_of_a_framework_take_as_long_as_their_bytes(fidelity: str) -> None:
    """However few results they have: its blocks share out the rows, where XLA's loop would give each result to one thread."""
    images, channels = dense(0, 128, 16, 112, 112, dtype=BF16), dense(1, 16, dtype=BF16)
    step = recording(call("sum", (images,), (channels,), dim=(0, 2, 3)), held={0: "input"}, returned=(channels,))
    found = predict(meshcast.load(text(step).encode()), Options(on="h200", levers=False, host="off", fidelity=fidelity))
    streamed = 128 * 16 * 112 * 112 * 2 / 4.2e12
    assert found.step_time_s is not None
    assert streamed < found.step_time_s < 4 * streamed + 50e-6


def test_elements_are_picked_from_a_repeated_row() -> None:
    """A row that is repeated for every sample holds fewer elements than it shows."""
    row, at = View(0, (8, 512), (0, 1), "int64"), dense(1, 8, 512, dtype="int64")
    picked = dense(2, 8, 512, dtype="int64")
    step = recording(call("gather", (row, at), (picked,), dim=1), held={0: "buffer", 1: "input"}, returned=(picked,))
    step = Recording(ops=step.ops, sizes={**step.sizes, 0: 512 * 8}, held=step.held, returned=step.returned)
    (kernel,) = (kernel for kernel, _ in lowered(step).schedule.walk())
    assert kernel.kind is KernelKind.LOOP_FUSION  # a thread an element


def test_operands_without_elements_are_left_out() -> None:
    x, out = dense(0, 64), dense(2, 64)
    step = recording(call("cat", (dense(1, 0), x), (out,)), held={0: "input", 1: "input"}, returned=(out,))
    (kernel,) = (kernel for kernel, _ in lowered(step).schedule.walk())
    assert kernel.read_bytes == 256
