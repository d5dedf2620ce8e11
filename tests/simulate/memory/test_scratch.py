"""What kernels need besides their values: workspaces, partial sums, copies; numbers from measured programs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshcast.hardware import load_device
from meshcast.lower import Kernel, KernelKind
from meshcast.lower.products.split_k import padded_bytes, partial_bytes, split_parts
from meshcast.simulate.memory.liveness import peak_memory
from meshcast.simulate.memory.scratch import calls_cublas, is_library_call, needs_once_timed, scratch_bytes
from meshcast.workload.graph import Attention, Gemm, Tensor
from meshcast.workload.shapes import SortGeometry
from tests.simulate.schedules import program, schedule

H200, A100, TPU = (load_device(name) for name in ("h200", "a100-sxm-80gb", "tpu-v5e"))
MIB = 2**20


def product(m: int, n: int, k: int, dtype: str = "bf16", out: str = "", batch: int = 1) -> Gemm:
    return Gemm(
        batch=batch, m=m, n=n, k=k, lhs_dtype=dtype, rhs_dtype=dtype, out_dtype=out or dtype,
        lhs_contracting_minor=True, rhs_contracting_minor=False,
    )  # fmt: skip


def kernel(shape: Gemm, **more: object) -> Kernel:
    fields: dict[str, object] = {"dtype": shape.lhs_dtype, "matrix_flops": 1.0, "geometry": shape}
    return Kernel(name="gemm", kind=KernelKind.GEMM, **(fields | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ((256, 256, 256), 4), ((1024, 1024, 1024), 1), ((16, 4096, 4096), 8), ((16, 11008, 4096), 4),
        ((128, 11008, 4096), 2), ((64, 64, 65536), 128), ((512, 2048, 8192), 2), ((16, 32000, 4096), 1),
    ],
)  # fmt: skip
def test_k_is_split_as_on_an_h200(sizes: tuple[int, int, int], parts: int) -> None:
    assert split_parts(product(*sizes), H200.cores, H200.architecture) == parts


@pytest.mark.parametrize(("architecture", "parts"), [("Hopper", 8), ("Ampere", 4)])
def test_parts_are_weighed_as_by_hand(architecture: str, parts: int) -> None:
    """One tile of 128 x 128 with K = 256, in millions of the rewriter's own units: compute, launch, sum.

    Unsplit 839. Hopper: 4 parts 210 + 44 + 57 = 310, 8 parts 105 + 44 + 108 = 256, 16 parts 52 + 44 + 209 = 305.
    Ampere, whose sums cost more: 2 parts 419 + 57 + 77 = 553, 4 parts 210 + 57 + 138 = 404, 8 parts 105 + 57 + 261 = 422.
    """
    shape = product(128, 128, 256)
    assert split_parts(shape, 132, architecture) == parts
    assert partial_bytes(shape, parts) == parts * 128 * 128 * 4
    assert partial_bytes(shape, 1) == 0


def test_operands_are_padded_where_k_has_no_equal_parts() -> None:
    """As XLA compiled a regression's gradient: 50,000 rows in 128 parts are 128 x 392, 391 being no multiple of 16 bytes."""
    assert padded_bytes(product(64, 100, 50_000, "f32"), 128) == 128 * 392 * (64 + 100) * 4
    assert padded_bytes(product(64, 100, 50_176, "f32"), 128) == 0
    assert padded_bytes(product(64, 100, 50_000, "f32"), 1) == 0


@pytest.mark.parametrize(("kind", "readers", "copies"), [("LOOP_FUSION", 1, 1), ("LOOP_FUSION", 2, 2), ("GEMM", 1, 2)])
def test_what_a_pass_makes_for_a_split_product_alone_is_padded_as_it_is_made(
    kind: str, readers: int, copies: int
) -> None:
    """A regression's gradient, `[64, 50000] x [50000, 100]` in 128 parts of 392, by cuBLAS: it reads what lies padded."""
    shape = product(64, 100, 50_000, "f32")
    rows, padded = Tensor((64, 50_000), "f32"), 128 * 392 * 4
    types = {1: Tensor((50_000, 100), "f32"), 2: rows, 3: Tensor((64, 100), "f32"), 4: Tensor((1,), "f32")}
    steps = [
        Kernel(name="made", kind=KernelKind[kind], dtype="f32", reads=(0,), writes=(2,), operand_bytes=(4,)),
        kernel(shape, reads=(2, 1), writes=(3,), operand_bytes=(rows.bytes, types[1].bytes)),
    ]
    if readers > 1:
        last = Kernel(name="last", kind=KernelKind.REDUCTION, dtype="f32", reads=(2,), writes=(4,), operand_bytes=(4,))
        steps.insert(1, last)
    needed = program(schedule(steps, [0, 1], [3, *([4] if readers > 1 else [])]), sizes=types)
    held = padded * (64 + 100) + (rows.bytes if copies > 1 else 0)
    assert peak_memory(needed, H200).temporaries == held + partial_bytes(shape, 128) + 32 * MIB


def test_small_f32_products_are_cublass_once_they_are_split() -> None:
    """On an H200 of two libraries: 2^28.3 multiply-adds in 128 and 64 parts went to cuBLAS, whole ones of as many to Triton."""
    split, whole = product(128, 128, 20_000, "f32"), product(20_000, 128, 128, "f32")
    assert split_parts(split, H200.cores, H200.architecture) == 64
    assert split_parts(whole, H200.cores, H200.architecture) == 1
    assert calls_cublas(kernel(split), split, H200)
    assert not calls_cublas(kernel(whole), whole, H200)


def test_an_epilogue_behind_a_sum_does_not_keep_a_product_from_cublas() -> None:
    split, whole = product(64, 128, 131_072, "f32"), product(2048, 2048, 2048, "f32")
    assert split_parts(split, H200.cores, H200.architecture) > 1 == split_parts(whole, H200.cores, H200.architecture)
    assert calls_cublas(kernel(split, vector_flops=1.0), split, H200)
    assert not calls_cublas(kernel(whole, vector_flops=1.0), whole, H200)


def test_integer_and_empty_products_are_never_split() -> None:
    assert split_parts(product(128, 128, 256, "i32"), 132, "Hopper") == 1
    assert split_parts(product(128, 128, 0), 132, "Hopper") == 1


def test_a_split_product_holds_its_partial_sums_in_f32() -> None:
    assert scratch_bytes(kernel(product(16, 4096, 4096)), H200) == 8 * 16 * 4096 * 4


def test_cublas_has_a_workspace_by_generation_and_tritons_kernels_none() -> None:
    large = kernel(product(8192, 8192, 8192))
    assert scratch_bytes(large, H200) == 32 * MIB
    assert scratch_bytes(large, A100) == 4 * MIB
    assert scratch_bytes(large, TPU) == 0
    assert scratch_bytes(replace(large, vector_flops=1.0), H200) == 0  # with an epilogue of XLA's own
    assert scratch_bytes(kernel(product(2048, 2048, 2048)), H200) == 0


def test_where_nothing_is_timed_every_product_is_cublass() -> None:
    small = kernel(product(16, 4096, 4096))
    assert scratch_bytes(small, H200, tuned=False) == 32 * MIB  # its partial sums are in the workspace
    assert is_library_call(small, H200, tuned=False)
    assert scratch_bytes(replace(small, vector_flops=1.0), H200, tuned=False) == 32 * MIB


def test_byte_products_transpose_what_is_not_k_major() -> None:
    assert scratch_bytes(kernel(product(2048, 11008, 4096, "i8", "i32")), H200) == 32 * MIB + 11008 * 4096


def test_a_small_vector_product_writes_its_products() -> None:
    assert scratch_bytes(kernel(product(1, 3072, 768)), H200) == 3072 * 768 * 2


def test_attention_accumulates_dq_in_f32() -> None:
    shape = Attention(
        batch=1, heads=32, kv_heads=32, q_len=4096, kv_len=4096, head_dim=128, dtype="bf16", causal=True, backward=True
    )
    backward = Kernel(name="attention", kind=KernelKind.ATTENTION, dtype="bf16", geometry=shape)
    assert scratch_bytes(backward, H200) == 32 * 4096 * 128 * 4 + 32 * 4096 * 4
    assert scratch_bytes(replace(backward, geometry=replace(shape, backward=False)), H200) == 0


def test_stable_sorts_have_places_and_radix_sorts_second_arrays() -> None:
    """As XLA's buffer assignment has them for `jnp.sort` and `lax.top_k` on an H200 (rows of 262,144 f32: four more arrays)."""
    rows = SortGeometry(length=1024, batch=1024, operands=1, stable=True)
    sort = Kernel(name="sort", kind=KernelKind.SORT, dtype="bf16", written_bytes=2 * MIB, geometry=rows)
    assert scratch_bytes(sort, H200) == 4 * MIB
    assert scratch_bytes(replace(sort, geometry=replace(rows, stable=False)), H200) == 0
    long = replace(rows, length=2**18, batch=64)
    radix = Kernel(name="sort", kind=KernelKind.SORT, dtype="f32", written_bytes=64 * MIB, geometry=long)
    assert scratch_bytes(radix, H200) == 256 * MIB
    assert scratch_bytes(replace(radix, dtype="i32"), H200) == 64 * MIB
    pairs = replace(radix, geometry=replace(long, operands=2), written_bytes=128 * MIB)
    assert scratch_bytes(pairs, H200) == 128 * MIB


def test_nothing_is_written_over_a_library_calls_result() -> None:
    library, triton = kernel(product(8192, 8192, 8192)), kernel(product(2048, 2048, 2048))
    assert is_library_call(library, H200)
    assert not is_library_call(triton, H200)

    def temporaries(first: Kernel) -> int:
        steps = [
            replace(first, reads=(0,), writes=(1,)),
            Kernel(name="relu", kind=KernelKind.LOOP_FUSION, dtype="bf16", reads=(1,), writes=(2,)),
            replace(first, reads=(2,), writes=(3,)),
        ]
        return peak_memory(program(schedule(steps, [0], [3])), H200).temporaries

    # The pass reuses a Triton product's buffer; beside cuBLAS's it needs its own, and that is less than the workspace.
    value = program(schedule([], [0], [0])).tensors[0].bytes
    assert temporaries(triton) == value
    assert temporaries(library) == 32 * MIB + value


@pytest.mark.parametrize(
    ("shape", "epilogue", "needed"),
    [
        (product(16384, 3072, 768, "f32"), 1.0, 192 * MIB),  # the product that a pass of its own reads
        (product(1024, 1024, 1024, "f32"), 1.0, 32 * MIB),  # 4 MiB of product: the workspace is more
        (product(16384, 3072, 768, "f32"), 0.0, 32 * MIB),
        (product(32, 3072, 768, "f32"), 1.0, 0),  # few rows stay with Triton
        (product(16384, 3072, 768), 1.0, 0),  # bf16: the epilogue stays in Triton's kernel
    ],
)
def test_once_timed_an_f32_product_leaves_its_epilogue(shape: Gemm, epilogue: float, needed: int) -> None:
    left_to_triton = kernel(shape, writes=(2,), vector_flops=epilogue)
    assert needs_once_timed(left_to_triton, H200, tuned=True)[0] == needed
    if needed:  # the same of a modelled kernel; others may have their K split
        assert scratch_bytes(left_to_triton, H200) == needed
    assert needs_once_timed(replace(left_to_triton, writes=(2, 3)), H200, tuned=True)[0] == 0  # cuBLAS's already
