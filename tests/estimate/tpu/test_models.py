"""The TPU's model by hand: passes of the arrays, copies, windows, VMEM; and what must hold for any kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from meshcast.estimate.analytical import Analytical
from meshcast.estimate.products import ArrayProduct, product_of
from meshcast.estimate.tpu import TpuAnalytical
from meshcast.estimate.tpu.blocks import read_again
from meshcast.estimate.tpu.machine import TpuMachine, TpuTraffic
from meshcast.estimate.tpu.matrix import array_cycles
from meshcast.estimate.tpu.parameters import TpuParameters, shipped_tpu_calibration
from meshcast.estimate.tpu.vector import padding, row_sums
from meshcast.hardware import load_device
from meshcast.lower.kernel import Kernel, KernelKind, Recency
from meshcast.lower.schedule.last_uses import NEVER
from meshcast.workload.graph import Attention, Convolution, Gemm, Indexed, Reduction, Tensor
from meshcast.workload.shapes import SortGeometry
from tests.estimate.conformance import SAMPLES, check_conformance, gemm, pass_over
from tests.estimate.formulas import by_formula
from tests.estimate.test_solvers import call as solver_call

V6E, V5E, V4 = (load_device(name) for name in ("tpu-v6e", "tpu-v5e", "tpu-v4"))
GENERATIONS = (
    "tpu-v2",
    "tpu-v2-core",
    "tpu-v3",
    "tpu-v3-core",
    "tpu-v4",
    "tpu-v5e",
    "tpu-v5p",
    "tpu-v6e",
    "tpu-v7",
    "tpu-v7-core",
)


def machine(name: str = "tpu-v6e", **changed: float) -> TpuMachine:
    return TpuMachine(device=load_device(name), parameters=replace(TpuParameters(), **changed))


def far(kernel: Kernel) -> Kernel:
    """The kernel with everything in memory."""
    reads, kept = ((NEVER, kernel.read_bytes),), ((NEVER, kernel.written_bytes),)
    return replace(kernel, recency=Recency(reads=reads, written=NEVER, kept=kept))


def seconds(kernel: Kernel, name: str = "tpu-v6e") -> float:
    return float(TpuAnalytical().estimate([kernel], load_device(name)).time[0])


@pytest.mark.parametrize("device", GENERATIONS)
def test_every_generation_conforms(device: str) -> None:
    check_conformance(TpuAnalytical(), load_device(device))
    check_conformance(Analytical(), load_device(device))


def test_one_fidelity_for_both_kinds() -> None:
    sample = gemm(1024, 1024, 1024)
    both = Analytical()
    assert both.estimate([sample], V6E).time == TpuAnalytical().estimate([sample], V6E).time
    assert both.supports(sample, load_device("h200")).level == "yes"
    assert "not a TPU" in TpuAnalytical().supports(sample, load_device("h200")).reason
    bare = replace(V6E, tensor_cores=None)
    assert "systolic arrays" in both.supports(sample, bare).reason


def test_passes_of_a_product() -> None:
    """4096^3 on four arrays of 256 x 256: 16 x 16 tiles, 4096 rows through each."""
    assert array_cycles(ArrayProduct(count=1, m=4096, n=4096, k=4096), machine()) == 16 * 16 * 4096 / 4
    # On 128 x 128 there are four times as many tiles.
    assert array_cycles(ArrayProduct(count=1, m=4096, n=4096, k=4096), machine("tpu-v5e")) == 32 * 32 * 4096 / 4


def test_sides_are_padded_to_the_array_and_rows_to_sublanes() -> None:
    full = array_cycles(ArrayProduct(count=1, m=4096, n=4096, k=256), machine())
    assert array_cycles(ArrayProduct(count=1, m=4095, n=4090, k=64), machine()) == full


def test_the_better_operand_is_held() -> None:
    """A narrow product streams its narrow side through tiles of the wide one, and the other way round."""
    wide = ArrayProduct(count=1, m=100_000, n=512, k=256)
    turned = ArrayProduct(count=1, m=512, n=100_000, k=256)
    assert array_cycles(wide, machine()) == array_cycles(turned, machine())


def test_few_rows_wait_for_weights() -> None:
    """16 rows through 256 tiles: 256 x 256 weights of 2 bytes at 4096 bytes a cycle take 32 cycles a tile."""
    few = ArrayProduct(count=1, m=16, n=4096, k=4096)
    assert array_cycles(few, machine(weight_bytes=4096.0)) == 256 * 32


def convolution(*, batch: int, channels: int, out: int, side: int, kernel: int, groups: int = 1) -> Convolution:
    macs = batch * side * side * out * (channels // groups) * kernel * kernel
    return Convolution(
        batch=batch, in_channels=channels, out_channels=out, in_spatial=(side, side), out_spatial=(side, side),
        kernel=(kernel, kernel), strides=(1, 1), padding=((1, 1), (1, 1)), lhs_dilation=(1, 1), rhs_dilation=(1, 1),
        feature_groups=groups, batch_groups=1, macs=macs, lhs_dtype="bf16", rhs_dtype="bf16", out_dtype="bf16",
        layout="b01f,01io->b01f",
    )  # fmt: skip


def convolved(geometry: Convolution) -> Kernel:
    size = geometry.batch * geometry.in_spatial[0] ** 2 * 2
    return Kernel(
        name="convolution", kind=KernelKind.CONVOLUTION, dtype="bf16", matrix_flops=2.0 * geometry.macs,
        read_bytes=size * geometry.in_channels, written_bytes=size * geometry.out_channels, geometry=geometry,
    )  # fmt: skip


def test_depthwise_convolutions_are_the_vector_units() -> None:
    """As many multiply-adds in dense groups take the arrays a fraction of the time."""
    depthwise = convolved(convolution(batch=64, channels=128, out=128, side=56, kernel=3, groups=128))
    assert seconds(depthwise) > 1e-4
    dense = convolved(convolution(batch=64, channels=128, out=128, side=56, kernel=3))
    assert dense.matrix_flops == 128 * depthwise.matrix_flops
    assert seconds(dense) < 10 * seconds(depthwise)


def test_few_channels_are_gathered_first() -> None:
    shallow = convolved(convolution(batch=32, channels=3, out=64, side=112, kernel=7))
    deep = convolved(convolution(batch=32, channels=8, out=64, side=112, kernel=7))
    assert seconds(shallow) > seconds(deep)


def again(kernel: Kernel, moved: TpuTraffic, on: TpuMachine) -> float:
    """What a product reads beyond once."""
    sides = product_of(kernel.geometry)
    assert isinstance(kernel.geometry, Gemm)
    assert sides is not None
    return read_again(kernel.geometry, sides, moved, on)


def test_a_product_whose_blocks_fit_is_read_once() -> None:
    moved = TpuTraffic(read=2**20, written=2**19, hbm_read=2**20, hbm_written=2**19)
    assert again(gemm(512, 512, 512), moved, machine()) == 0


def test_large_products_are_read_again_and_less_with_more_room() -> None:
    size = 2.0 * 2 * 8192**2
    moved = TpuTraffic(read=size, written=size / 2, hbm_read=size, hbm_written=size / 2)
    usual, roomy = (again(gemm(8192, 8192, 8192), moved, machine(block_bytes=limit)) for limit in (2.0**24, 2.0**26))
    assert usual > roomy > 0
    # By hand: 1024 x 1024 blocks with K in pieces of 512, 2 MiB each way in four buffers and 8 MiB of sums: 8 reads of each.
    assert usual <= 7 * size


def test_operands_in_vmem_are_not_read_again_from_memory() -> None:
    near = TpuTraffic(read=2.0**28, written=0.0, hbm_read=0.0, hbm_written=0.0)
    assert again(gemm(8192, 8192, 8192), near, machine()) == 0


def test_a_group_is_cut_into_blocks_on_its_own() -> None:
    """8 groups of 8192 x 8192 x 8192 read again 8 times what one does."""
    single, whole = gemm(8192, 8192, 8192), gemm(8 * 8192, 8192, 8192)
    assert isinstance(whole.geometry, Gemm)
    grouped = replace(whole, geometry=replace(whole.geometry, groups=8))
    size = 2.0 * 2 * 8192**2
    moved = TpuTraffic(read=size, written=0.0, hbm_read=size, hbm_written=0.0)
    more = TpuTraffic(read=8 * size, written=0.0, hbm_read=8 * size, hbm_written=0.0)
    assert again(grouped, more, machine()) == 8 * again(single, moved, machine()) > 0


def test_what_stays_in_vmem_is_faster() -> None:
    kernel = pass_over(2**22, 2**22, vector=2.0**20)
    assert seconds(kernel) < seconds(far(kernel)) / 2


def test_an_age_within_reach_is_on_chip() -> None:
    reach = machine().kept_bytes
    kernel = pass_over(2**22, 0)
    near, past = (replace(kernel, recency=Recency(reads=((int(age), 2**22),))) for age in (reach, 2 * reach))
    assert machine().traffic(near).hbm == 0
    assert machine().traffic(past).hbm == 2**22


def test_a_stream_takes_its_bytes_at_the_bandwidth_that_copies_reach() -> None:
    kernel = far(pass_over(2**30, 2**30, vector=2.0**28))
    share = shipped_tpu_calibration().parameters.hbm_share
    assert seconds(kernel) == pytest.approx(2**31 / (share * V6E.memory_bandwidth), rel=0.02)


def test_cores_with_memories_of_their_own_share_none() -> None:
    """Two cores of a v4 run one kernel on one memory; those of a v3 have a program and a memory each."""
    p = shipped_tpu_calibration().parameters
    v3, v4 = (load_device(name) for name in ("tpu-v3", "tpu-v4"))
    alone, together = (
        TpuMachine(device=device, parameters=p).bandwidth / device.memory_bandwidth for device in (v3, v4)
    )
    assert (alone, together) == (pytest.approx(p.hbm_share), pytest.approx(p.hbm_share * p.megacore_share))


def test_windows_overlap() -> None:
    """Twice the elements in many windows take twice the time; from one window on, less than twice."""
    small, large = (pass_over(4 * n, 4 * n, vector=n, functions=n) for n in (2**19, 2**24))
    per_element = seconds(small) / 2**19, seconds(large) / 2**24
    assert per_element[0] > 1.5 * per_element[1]


def test_longer_loops_in_vmem_are_pipelined_and_never_faster_than_shorter_ones() -> None:
    """Beyond one window of 2^20 elements the shorter engines are hidden: twice the elements, hardly more time at first."""
    times = [
        seconds(pass_over(4 * n, 4 * n, vector=n, functions=n)) for n in (2**20, 2**20 + 2**14, 2**21, 2**22, 2**23)
    ]
    assert all(b > 0.999 * a for a, b in pairwise(times))
    assert times[4] == pytest.approx(2 * times[3], rel=0.05)
    assert times[1] < 1.02 * times[0]


def test_scalars_cost_almost_nothing() -> None:
    counter = replace(far(pass_over(4, 4, vector=1)), elements=1)
    assert seconds(counter) < 1e-7


def test_copies_pass_no_register() -> None:
    plain = far(pass_over(2**22, 2**22))
    assert seconds(replace(plain, flags=frozenset({"copy"}))) < seconds(plain)


def test_f32_products_take_more_passes_when_precision_is_asked_for() -> None:
    usual, high, highest = (
        gemm(4096, 4096, 4096, dtype="f32", out="f32", precision=p) for p in ("DEFAULT", "HIGH", "HIGHEST")
    )
    assert seconds(usual) < seconds(high) < seconds(highest)
    assert seconds(highest) > 5 * seconds(gemm(4096, 4096, 4096))


def test_f16_products_run_as_bf16_where_vector_units_have_16_bits_and_are_converted_elsewhere() -> None:
    half, other = gemm(4096, 4096, 4096, dtype="f16", out="f16"), gemm(4096, 4096, 4096)
    assert seconds(half) == seconds(other)
    # Published of the one: 967 us (SCALE-Sim-validation).
    assert 1.5 < seconds(half, "tpu-v4") / seconds(other, "tpu-v4") < 2.0
    assert seconds(half, "tpu-v4") == pytest.approx(967e-6, rel=0.1)


def test_gathers_scatters_and_sorts_grow_with_their_work() -> None:
    def picks(kind: KernelKind, count: int) -> Kernel:
        table = Tensor((1_000_000, 128), "bf16")
        moved = count * 256
        return Kernel(
            name="picks", kind=kind, dtype="bf16", read_bytes=moved, written_bytes=moved,
            geometry=Indexed(table=table, slice_shape=(1, 128), count=count),
        )  # fmt: skip

    assert seconds(picks(KernelKind.GATHER, 2**16)) > 10 * seconds(picks(KernelKind.GATHER, 2**12))
    assert seconds(picks(KernelKind.SCATTER, 2**16)) > seconds(picks(KernelKind.GATHER, 2**16))
    sorts = [
        Kernel(
            name="sort", kind=KernelKind.SORT, dtype="f32", read_bytes=2**22, written_bytes=2**22,
            geometry=SortGeometry(length=2**12, batch=2**8, operands=1, top=top),
        )
        for top in (None, 16)
    ]  # fmt: skip
    assert seconds(sorts[0]) > seconds(sorts[1])


def test_a_sum_to_one_element_goes_to_the_scalar_core() -> None:
    reduced = Kernel(
        name="reduce", kind=KernelKind.REDUCTION, dtype="f32", vector_flops=2.0**17, read_bytes=2**19, written_bytes=4,
        geometry=Reduction(shape=(2**17,), dims=(0,)), elements=1,
    )  # fmt: skip
    rows = replace(reduced, geometry=Reduction(shape=(2**7, 2**10), dims=(1,)), elements=2**7)
    assert seconds(reduced) > seconds(rows) + 1e-6


def attention(pages: int = 0) -> Kernel:
    """Eight queries of 32 heads against 2**14 keys, as a hand-written kernel declares them."""
    keys = 2 * 2 * 2**14 * 8 * 128
    return Kernel(
        name="attention", kind=KernelKind.ATTENTION, dtype="bf16", matrix_flops=4.0 * 8 * 32 * 2**14 * 128,
        vector_flops=8.0 * 32 * 2**14, transcendentals=8.0 * 32 * 2**14, read_bytes=keys, written_bytes=2 * 8 * 32 * 128,
        geometry=Attention(
            batch=1, heads=32, kv_heads=8, q_len=8, kv_len=2**14, head_dim=128, dtype="bf16", causal=True,
            backward=False, pages=pages,
        ),
    )  # fmt: skip


def custom(flops: float) -> Kernel:
    """A call that declares its work and nothing else."""
    return Kernel(
        name="call", kind=KernelKind.CUSTOM, dtype="bf16", matrix_flops=flops, vector_flops=2.0**20,
        transcendentals=2.0**18, read_bytes=2**22, written_bytes=2**22,
    )  # fmt: skip


@pytest.mark.parametrize(
    "sample",
    [
        *SAMPLES,
        gemm(256, 65536, 128),  # results take longest
        convolved(convolution(batch=8, channels=64, out=64, side=56, kernel=3)),
        convolved(convolution(batch=8, channels=64, out=64, side=56, kernel=3, groups=64)),
        replace(pass_over(2**22, 2**22), flags=frozenset({"copy"})),
        attention(),
        attention(pages=2**14),
        custom(flops=2.0**36),
        custom(flops=0.0),
        solver_call("cholesky", 512, batch=4),
        solver_call("eigh", 64),
    ],
)
@pytest.mark.parametrize("moved", [far, lambda kernel: kernel])
def test_explanations_add_up(sample: Kernel, moved: Callable[[Kernel], Kernel]) -> None:
    told = TpuAnalytical().explain(moved(sample), V6E)
    (last,) = (term.value for term in told.terms if term.symbol == "t")
    assert last == TpuAnalytical().work(moved(sample), V6E).time
    assert by_formula(told) == pytest.approx(last)
    assert told.time >= last


def test_pages_are_fetched_one_after_the_other() -> None:
    cycles, fixed = shipped_tpu_calibration().parameters.page_cycles, machine().fixed(machine().traffic(attention()))
    assert seconds(attention(pages=2**14)) == pytest.approx(fixed + 2**14 * cycles / V6E.clock_hz)


@pytest.mark.parametrize(
    ("device", "kernel", "published_us"),
    [
        ("tpu-v6e", gemm(4096, 4096, 4096), 177.0),
        ("tpu-v6e", far(gemm(8192, 8192, 8192)), 1576.0),
        ("tpu-v6e", far(gemm(16, 12288, 4096)), 84.0),
        ("tpu-v7-core", far(gemm(16384, 16384, 16384)), 7971.0),
    ],
)
def test_published_times_of_products(device: str, kernel: Kernel, published_us: float) -> None:
    """Device times that cocossim and the TPU microbenchmarks of AI-Hypercomputer publish."""
    assert seconds(kernel, device) * 1e6 == pytest.approx(published_us, rel=0.15)


def test_newer_generations_are_faster() -> None:
    times = [
        seconds(far(gemm(8192, 8192, 8192)), name) for name in ("tpu-v3", "tpu-v4", "tpu-v5p", "tpu-v6e", "tpu-v7")
    ]
    assert times == sorted(times, reverse=True)
    assert seconds(far(pass_over(2**30, 2**30)), "tpu-v5p") < seconds(far(pass_over(2**30, 2**30)), "tpu-v5e")


def test_a_device_without_arrays_is_named() -> None:
    from meshcast.base.errors import UnsupportedError

    with pytest.raises(UnsupportedError, match="systolic arrays"):
        TpuAnalytical().work(gemm(64, 64, 64), replace(V5E, tensor_cores=None))
    assert V4.tensor_cores is not None


def test_a_kernel_waits_for_its_first_copy_and_for_its_last() -> None:
    p = TpuParameters()
    some = TpuTraffic(read=8.0, written=8.0, hbm_read=8.0, hbm_written=0.0)
    one, both = machine().fixed(some), machine().fixed(replace(some, hbm_written=8.0))
    assert both - one == pytest.approx(p.copy_ns * 1e-9)
    assert machine().fixed(replace(some, hbm_read=0.0)) == pytest.approx(p.kernel_cycles / V6E.clock_hz)


def test_arrays_lie_in_whole_tiles_over_the_dimensions_that_need_the_fewest() -> None:
    assert padding((), machine()) == 1.0
    assert padding((8, 128), machine()) == padding((128, 8), machine()) == 1.0
    assert padding((16, 16, 32), machine()) == 4.0  # 16 x 2 tiles of 8 x 128
    assert padding((16, 8, 16), machine()) == 8.0  # 16 tiles
    assert padding((48, 8, 8), machine()) == pytest.approx(8 * 1024 / 3072)
    assert padding((256,), machine()) == 4.0


def test_a_loop_of_one_window_runs_on_one_of_two_cores_that_share_a_memory() -> None:
    assert machine("tpu-v4").sharing(0.1).vector_rate == V4.clock_hz
    assert machine("tpu-v4").sharing(64.0).vector_rate == 2 * V4.clock_hz
    assert machine("tpu-v3").sharing(0.1).vector_rate == machine("tpu-v3").vector_rate  # each has a program of its own


def test_loops_over_f16_are_converted_on_units_without_16_bits() -> None:
    half, other = (replace(pass_over(1 << 18, 1 << 18), dtype=dtype) for dtype in ("f16", "bf16"))
    assert seconds(half, "tpu-v4") > 1.5 * seconds(other, "tpu-v4")
    assert seconds(half) == seconds(other)


def test_f16_is_turned_where_it_is_read_whatever_a_loop_computes_in() -> None:
    """256 vectors of f16 into f32: 3.8 cycles each, shared by v4's two cores; the sums that come of them are f32."""
    rows = replace(
        pass_over(1 << 19, 1 << 10), kind=KernelKind.REDUCTION, geometry=Reduction(shape=(256, 1024), dims=(1,)),
        elements=256, shape=(256,),
    )  # fmt: skip
    turned = seconds(replace(rows, halves=(1 << 19, 0)), "tpu-v4") - seconds(replace(rows, halves=(0, 0)), "tpu-v4")
    assert turned == pytest.approx(256 * 3.8 / (2 * V4.clock_hz))
    assert seconds(replace(rows, halves=(1 << 19, 0))) == seconds(rows)  # v6e computes in 16 bits


def test_sums_of_rows_go_across_lanes_and_sums_of_columns_do_not() -> None:
    """4,096 rows are 512 vectors of sums, a row in each sublane: 12 cycles each."""
    across = replace(
        pass_over(1 << 21, 1 << 14), kind=KernelKind.REDUCTION, geometry=Reduction(shape=(4096, 128), dims=(1,)),
        elements=4096,
    )  # fmt: skip
    down = replace(across, geometry=Reduction(shape=(128, 4096), dims=(0,)))
    assert row_sums(down, machine()) == 0.0
    assert row_sums(across, machine()) == pytest.approx(512 * 12 / V6E.clock_hz)
    assert seconds(across) > seconds(down)


def test_what_is_kept_beside_vmem_is_copied_in_and_out_by_every_kernel() -> None:
    """v4 keeps values in CMEM, all of it: two latencies whether they come from there or from memory."""
    kernel, v4 = pass_over(4096, 4096), machine("tpu-v4")
    latencies = 2 * v4.parameters.copy_ns * 1e-9
    assert v4.fixed(v4.traffic(kernel)) == v4.fixed(v4.traffic(far(kernel)))
    assert v4.fixed(v4.traffic(kernel)) == pytest.approx(latencies + v4.parameters.kernel_cycles / V4.clock_hz)
    assert v4.kept_bytes == 128 * 2**20
    assert machine().fixed(machine().traffic(kernel)) < latencies


def test_an_argument_that_is_read_again_is_brought_in_beside_its_first_reader() -> None:
    """The copy shares the bandwidth and takes no part in the steps: never less than twice the bytes, nothing while it hides."""
    kernel = far(pass_over(1 << 26, 1024))
    assert kernel.recency is not None
    again = replace(kernel, recency=replace(kernel.recency, again=((1 << 26, 1 << 26),)))
    too_far = replace(kernel, recency=replace(kernel.recency, again=((NEVER, 1 << 26),)))
    assert seconds(too_far) == seconds(kernel)
    floor = (2 * (1 << 26) + 1024) / machine().bandwidth
    assert floor < seconds(again) < floor + 2e-6
    told = TpuAnalytical().explain(again, V6E)
    assert "max(shared, " in told.formula
    terms = {term.symbol.partition(" ")[0]: term.value for term in told.terms}
    assert terms["t0"] + terms["shared"] == pytest.approx(seconds(again))  # the copy beside is what binds
    busy = replace(kernel, vector_flops=2.0**34)
    assert seconds(replace(busy, recency=again.recency)) == seconds(busy)
