"""Places of kernels among measured ones: what sets them apart, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshcast.estimate.profiled.estimator import Profiled
from meshcast.estimate.profiled.features import UNPADDED, WAITING, cold_share, place
from meshcast.hardware import load_device
from meshcast.lower.kernel import Kernel, KernelKind, Recency
from meshcast.workload.graph import Factorisation, Gemm, Indexed, Tensor
from tests.estimate.conformance import gemm

H200 = load_device("h200")


def apart(one: Kernel, other: Kernel) -> dict[int, float]:
    """The coordinates that two kernels of a family differ in."""
    (family, here), (same, there) = place(one, H200), place(other, H200)
    assert family == same
    return {i: b - a for i, (a, b) in enumerate(zip(here, there, strict=True)) if a != b}


def shaped(kernel: Kernel, **changes: object) -> Kernel:
    assert isinstance(kernel.geometry, Gemm)
    return replace(kernel, geometry=replace(kernel.geometry, **changes))  # type: ignore[arg-type]


def test_rows_that_are_not_aligned_lie_octaves_away() -> None:
    """Lhs is K-major, its rows 2 k bytes; rhs and the result have rows of 2 n bytes, 16 of which are a unit."""
    k_odd, n_odd = place(gemm(512, 512, 508), H200)[1], place(gemm(512, 508, 512), H200)[1]
    aligned = place(gemm(512, 512, 504), H200)[1]
    assert (aligned[9], aligned[10]) == (0.0, 0.0)
    assert (k_odd[9], k_odd[10]) == (3.0, 0.0)  # 1016 bytes
    assert (n_odd[9], n_odd[10]) == (3.0, 2.0)
    k_major = place(shaped(gemm(512, 508, 512), rhs_contracting_minor=True), H200)[1]
    assert (k_major[9], k_major[10]) == (0.0, 2.0)
    bytes_wide = place(gemm(512, 504, 512, dtype="i8", out="i32"), H200)[1]
    assert (bytes_wide[9], bytes_wide[10]) == (3.0, 0.0)  # 504 and 2016 bytes


def test_what_no_cache_holds_any_more_counts_by_its_share() -> None:
    """Half of the H200's 60 MiB is the limit: of 400 bytes those 300 that are older lie in memory."""
    limit = H200.cache_bytes / 2
    product = replace(gemm(8, 8, 8), read_bytes=400)
    warm = replace(product, recency=Recency(reads=((int(limit), 400),)))
    mixed = replace(product, recency=Recency(reads=((0, 100), (int(limit) + 1, 300))))
    assert [cold_share(kernel, H200) for kernel in (product, warm, mixed)] == [0.0, 0.0, 0.75]
    assert apart(warm, mixed) == {11: 2.25}
    stream, old = (replace(kernel, kind=KernelKind.LOOP_FUSION, geometry=None) for kernel in (warm, mixed))
    assert apart(stream, old) == {20: 1.5}  # twice as far for a kernel that only moves bytes


def test_skewed_picks_lie_away_from_even_ones() -> None:
    even = Indexed(table=Tensor((1024, 64), "f32"), slice_shape=(1, 64), count=256)
    kernel = Kernel(name="gather", kind=KernelKind.GATHER, dtype="f32", read_bytes=65536, geometry=even)
    skewed = replace(kernel, geometry=replace(even, skew=1.05))
    assert apart(kernel, skewed) == pytest.approx({5: 4.2})


def test_solvers_that_come_back_to_the_host_have_no_measured_family() -> None:
    """What their launches took is a part of what a caller waits for: a decomposition is modelled, a factorisation is not."""
    shape = Factorisation(routine="qr", batch=1, rows=1024, columns=64)
    kernel = Kernel(name="qr", kind=KernelKind.SOLVER, dtype="f32", read_bytes=2**18, geometry=shape)
    waiting = replace(kernel, geometry=replace(shape, routine="svd"))
    assert place(kernel, H200)[0].startswith("solver")
    assert place(waiting, H200)[0].startswith(WAITING)
    assert [Profiled().supports(each, H200).level for each in (kernel, waiting)] == ["yes", "no"]


def test_products_at_the_high_precision_are_tf32_on_a_gpu_and_passes_of_their_own_on_a_tpu() -> None:
    default = shaped(gemm(512, 512, 512), lhs_dtype="f32", rhs_dtype="f32", out_dtype="f32")
    default = replace(default, dtype="f32")
    high, highest = shaped(default, precision="HIGH"), shaped(default, precision="HIGHEST")
    gpu, tpu = load_device("h200"), load_device("tpu-v5e")
    assert place(high, gpu) == place(default, gpu)
    assert place(highest, gpu)[0] != place(default, gpu)[0]
    assert place(high, tpu)[0] != place(default, tpu)[0]


def test_unpadded_rows_are_no_family_that_was_measured() -> None:
    """Measured products pad rows that are not aligned; cuBLAS takes those of a framework as they are, by kernels of its own."""
    vocabulary = shaped(gemm(8192, 50257, 768), rhs_contracting_minor=True)
    as_it_is = shaped(vocabulary, padded=False)
    assert place(as_it_is, H200)[0] == UNPADDED
    assert place(vocabulary, H200)[0] != UNPADDED
    assert place(shaped(gemm(8192, 50304, 768), padded=False), H200)[0] == place(gemm(8192, 50304, 768), H200)[0]
    assert Profiled().supports(as_it_is, H200).level == "no"
    assert Profiled().supports(vocabulary, H200).level != "no"
