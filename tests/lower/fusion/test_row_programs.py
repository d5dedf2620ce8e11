"""Programs for rows spread over what reads them; every count is what XLA 0.11.2 compiles the same function to."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from meshcast.lower import KernelKind
from meshcast.lower.fusion.candidates import FusionCandidate
from meshcast.lower.fusion.cost_model import MAX_VALUES
from meshcast.lower.fusion.row_programs import gain_by_rows, is_tiled, take_in_by_rows
from meshcast.workload import Cost, Op, OpKind, Reduction, Tensor
from tests.lower.programs import kernels, lower_function, spec

ROWS = spec(4096, 768)
MB = 4096 * 768 * 4


def norm(x: jax.Array) -> jax.Array:
    d = x - jnp.mean(x, -1, keepdims=True)
    return d * lax.rsqrt(jnp.mean(d * d, -1, keepdims=True) + 1e-5)


def chained(x: jax.Array, y: jax.Array) -> jax.Array:
    return norm(y + norm(x))


def norm_gradient(x: jax.Array, y: jax.Array) -> jax.Array:
    (found,) = jax.vjp(norm, x)[1](y)
    return found


def softmax_gradient(x: jax.Array, y: jax.Array) -> jax.Array:
    (found,) = jax.vjp(jax.nn.softmax, x)[1](y)
    return found


def entropy_gradient(x: jax.Array, y: jax.Array) -> jax.Array:
    return jax.grad(lambda x: -jnp.mean(jnp.sum(jax.nn.log_softmax(x) * y, -1)))(x)


@pytest.mark.parametrize("function", [chained, norm_gradient, softmax_gradient, entropy_gradient])
def test_what_is_done_along_rows_is_one_kernel(function: Callable[..., jax.Array]) -> None:
    (kernel,) = kernels(lower_function(function, ROWS, ROWS))
    assert kernel.kind is KernelKind.REDUCTION
    assert (kernel.read_bytes, kernel.written_bytes) == (2 * MB, MB)


def test_a_norm_is_computed_again_in_each_of_two_readers() -> None:
    made = kernels(lower_function(lambda x, y: (norm(x) + y, norm(x) * y + 1), ROWS, ROWS))
    assert [kernel.read_bytes for kernel in made] == [2 * MB, 2 * MB]


@pytest.mark.parametrize(
    ("function", "shape"),
    [(lambda x, y: jnp.sum(norm(x) * y, 0), (4096, 768)), (lambda x, y: norm(x) * y, (64, 50257))],
)
def test_sums_of_columns_and_rows_that_no_tile_holds_stay_apart(
    function: Callable[..., jax.Array], shape: tuple[int, int]
) -> None:
    assert len(kernels(lower_function(function, spec(*shape), spec(*shape)))) == (2 if shape[0] == 4096 else 5)


def reduced(shape: tuple[int, ...], *dims: int) -> Op:
    cost = Cost(kind=OpKind.REDUCE, dtype="f32", geometry=Reduction(shape=shape, dims=dims))
    return Op(name="stablehlo.reduce", cost=cost, operands=(0, 1), results=(2,))


@pytest.mark.parametrize(
    ("op", "kept", "tiled"),
    [(reduced((8, 64), 1), (8,), True), (reduced((8, 64), 0), (64,), False), (reduced((8, 1 << 15), 1), (8,), False)],
)
def test_rows_that_a_tile_holds_are_tiled(op: Op, kept: tuple[int, ...], tiled: bool) -> None:
    assert isinstance(op.cost.geometry, Reduction)
    types = [
        Tensor(dtype="f32", shape=op.cost.geometry.shape),
        Tensor(dtype="f32", shape=()),
        Tensor(dtype="f32", shape=kept),
    ]
    assert is_tiled(op, types) == tiled


@pytest.mark.parametrize(("name", "tiled"), [("tanh", True), ("sign", False), ("is_finite", False)])
def test_arithmetic_that_tritons_emitter_knows_is_tiled(name: str, tiled: bool) -> None:
    cost = Cost(kind=OpKind.ELEMENTWISE, dtype="f32")
    op = Op(name=f"stablehlo.{name}", cost=cost, operands=(0,), results=(1,))
    assert is_tiled(op, [Tensor(dtype="f32", shape=(8, 64))] * 2) == tiled


def candidate(elements: int, *asked: int, rows: int = 0, reduces: bool = False) -> FusionCandidate:
    found = FusionCandidate(0, elements, 10.0, (10.0, 100.0, 1000.0), 1.0)
    found.rows, found.reduces = rows, reduces
    found.asked = dict.fromkeys(asked, float(elements))
    found.times = dict.fromkeys(asked, 2.0)
    found.reads_s, found.seconds = 2.0 * len(asked), 4.0 + 2.0 * len(asked)
    return found


def test_gain_is_what_is_not_read_less_what_is_read_instead() -> None:
    """Before 8 s, as said. After it 2 s of computing, of which 0.95 hide behind 1 + 2 + 3 s of moving: 6.1 s."""
    maker, reader = candidate(64, 5, rows=8), candidate(64, 7, 6)
    sizes = {5: (4.0, 300.0), 6: (4.0, 256.0)}
    assert gain_by_rows(maker, 7, reader, sizes) == pytest.approx(8.0 - 6.1)
    take_in_by_rows(maker, 7, reader, [Tensor(dtype="f32", shape=(64,))] * 8)
    assert (set(reader.asked), reader.rows, reader.cycles) == ({5, 6}, 8, 20.0)


def test_a_reduction_goes_into_programs_for_rows_alone_and_into_such_of_as_many() -> None:
    sizes = {5: (4.0, 256.0)}
    reduction = candidate(8, 5, reduces=True)
    assert gain_by_rows(reduction, 7, candidate(64, 7), sizes) is None
    assert gain_by_rows(reduction, 7, candidate(64, 7, rows=16), sizes) is None
    assert gain_by_rows(reduction, 7, candidate(64, 7, rows=8), sizes) is not None


def test_programs_read_no_more_than_a_kernel_may() -> None:
    maker, reader = candidate(64, *range(100, 100 + MAX_VALUES), rows=8), candidate(64, 7, 6)
    assert gain_by_rows(maker, 7, reader, dict.fromkeys(range(200), (4.0, 4.0))) is None
