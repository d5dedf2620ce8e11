"""What a product takes at least: no kernel with that product is answered by less, whatever is fused into it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshcast.estimate import GpuAnalytical, estimate_each, is_product, least_seconds
from meshcast.estimate.analytical import Analytical
from meshcast.estimate.estimator import Estimator
from meshcast.estimate.least import bare_product
from meshcast.estimate.roofline import Roofline
from meshcast.hardware import load_device
from meshcast.lower import Kernel, KernelKind, Recency
from meshcast.workload import Attention, Gemm

SIDES = st.sampled_from((2, 8, 24, 64, 100, 128, 512, 1000, 4096))
BYTES = st.integers(0, 2**32)
CHAINS: tuple[tuple[Estimator, ...], ...] = ((Roofline(),), (Analytical(),))


def _product(m: int, n: int, k: int, batch: int = 1) -> Kernel:
    return Kernel(
        name="dot",
        kind=KernelKind.GEMM,
        dtype="bf16",
        matrix_flops=2.0 * batch * m * n * k,
        read_bytes=2 * batch * k * (m + n),
        written_bytes=2 * batch * m * n,
        geometry=Gemm(
            batch=batch, m=m, n=n, k=k, lhs_dtype="bf16", rhs_dtype="bf16", out_dtype="bf16", lhs_contracting_minor=True,
            rhs_contracting_minor=True,
        ),
    )  # fmt: skip


@settings(deadline=None)
@given(
    m=SIDES, n=SIDES, k=SIDES, batch=st.sampled_from((1, 1, 16)), read=BYTES, written=BYTES, fused=st.integers(0, 2**34),
    ages=st.one_of(st.none(), st.tuples(BYTES, BYTES)), chain=st.sampled_from(CHAINS),
    device=st.sampled_from(("h100-sxm", "a100-sxm-80gb", "b200", "mi300x", "tpu-v5p")),
)  # fmt: skip
def test_no_kernel_is_faster_than_its_product_alone(
    m: int, n: int, k: int, batch: int, read: int, written: int, fused: int, ages: tuple[int, int] | None,
    chain: tuple[Estimator, ...], device: str,
) -> None:  # fmt: skip
    product = _product(m, n, k, batch)
    kernel = replace(
        product,
        read_bytes=read,
        written_bytes=written,
        vector_flops=float(fused),
        recency=None if ages is None else Recency(reads=((ages[0], max(1, read)),), written=ages[1]),
    )
    on = load_device(device)
    (least,) = least_seconds([kernel], on, chain).values()
    assert 0 < least <= estimate_each([kernel], on, chain)[kernel].time * (1 + 1e-12)
    assert least == next(iter(least_seconds([product], on, chain).values())), "it depends on the product alone"


@settings(deadline=None)
@given(
    heads=st.sampled_from((1, 8, 128)), length=st.sampled_from((128, 1000, 8192)), head_dim=st.sampled_from((64, 80, 128)),
    causal=st.booleans(), backward=st.booleans(), read=BYTES, written=BYTES, device=st.sampled_from(("h100-sxm", "tpu-v5p")),
)  # fmt: skip
def test_no_attention_is_faster_than_without_its_bytes(
    heads: int, length: int, head_dim: int, causal: bool, backward: bool, read: int, written: int, device: str
) -> None:
    scores = float(heads * length * length) / (2 if causal else 1)
    kernel = Kernel(
        name="flash",
        kind=KernelKind.ATTENTION,
        dtype="bf16",
        matrix_flops=(10 if backward else 4) * scores * head_dim,
        transcendentals=scores,
        read_bytes=read,
        written_bytes=written,
        geometry=Attention(
            batch=1, heads=heads, kv_heads=heads, q_len=length, kv_len=length, head_dim=head_dim, dtype="bf16",
            causal=causal, backward=backward,
        ),
    )  # fmt: skip
    on = load_device(device)
    (least,) = least_seconds([kernel], on, CHAINS[1]).values()
    assert 0 < least <= estimate_each([kernel], on, CHAINS[1])[kernel].time * (1 + 1e-12)


def test_an_estimator_that_says_nothing_is_taken_at_the_speed_of_light() -> None:
    class Silent(GpuAnalytical):
        name = "silent"
        product_floor = property()  # there is none

    device = load_device("h100-sxm")
    kernel = _product(4096, 4096, 4096)
    (least,) = least_seconds([kernel], device, [Silent()]).values()
    boost = device.clock_hz / device.peak_clock_hz
    assert least == pytest.approx(kernel.matrix_flops / device.matrix_flops["bf16"] / boost)


def test_products_with_vectors_and_other_kernels_are_not_counted() -> None:
    assert is_product(_product(64, 64, 64))
    assert not is_product(_product(1, 64, 64))
    assert not is_product(Kernel(name="add", kind=KernelKind.LOOP_FUSION, dtype="f32", vector_flops=1.0))
    bare = bare_product(_product(64, 64, 64))
    assert bare.read_bytes == bare.written_bytes == 0
    assert bare.geometry == _product(64, 64, 64).geometry
