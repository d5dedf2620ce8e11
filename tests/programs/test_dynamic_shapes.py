"""Dynamic dimensions: bounds are read as sizes, unbounded ones are asked for and refined."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from meshcast import predict
from meshcast.base.errors import MeshcastError, UnsupportedError, UsageError
from meshcast.programs import CaptureOptions, capture, from_bytes, from_exported, load
from meshcast.programs.exported import JaxSymbol

BOUNDED = b"""module {
  func.func @main(%a: tensor<?x8xf32, #stablehlo.bounds<16, ?>>) -> tensor<?x8xf32, #stablehlo.bounds<16, ?>> {
    %0 = stablehlo.tanh %a : tensor<?x8xf32, #stablehlo.bounds<16, ?>>
    return %0 : tensor<?x8xf32, #stablehlo.bounds<16, ?>>
  }
}"""
STATIC = BOUNDED.replace(b"?x8xf32, #stablehlo.bounds<16, ?>", b"16x8xf32")
UNBOUNDED = BOUNDED.replace(b", #stablehlo.bounds<16, ?>", b"")
TWO_UNKNOWN = UNBOUNDED.replace(b"?x8", b"?x?")


def _layers(x: Any, w: Any) -> Any:
    def layer(carry: Any, _: None) -> tuple[Any, None]:
        return jnp.tanh(carry @ w), None

    y, _ = jax.lax.scan(layer, x, None, length=3)
    return y.reshape(-1, 4).sum(0) + x.shape[0] + jnp.arange(x.shape[0]).sum()


def _exported(fn: Any, *shapes: tuple[Any, ...], constraints: tuple[str, ...] = (), text: str = "b") -> Any:
    scope = jax.export.SymbolicScope(constraints)
    made = {name: jax.export.symbolic_shape(name, scope=scope)[0] for name in text.split(",")}
    sized = [tuple(made["b"] * int(d[:-1] or 1) if isinstance(d, str) else d for d in shape) for shape in shapes]
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in sized]
    return jax.export.export(jax.jit(fn), platforms=("cuda",))(*args)


def test_bounds_are_sizes() -> None:
    bounded, static = predict(BOUNDED, on="h200"), predict(STATIC, on="h200")
    assert bounded.step_time_s == static.step_time_s
    assert bounded.memory == static.memory


@pytest.mark.parametrize("dims", [{"arg0.0": 16}, {"B": 16}], ids=["by place", "the only one"])
def test_unbounded_dimensions_are_given(dims: dict[str, int]) -> None:
    program = from_bytes(UNBOUNDED, name="x", where="x", dims=dims)
    assert "tensor<16x8xf32>" in program.text
    assert "?" not in program.text
    assert predict(program).flops == predict(STATIC).flops


@pytest.mark.parametrize("dims", [{}, {"arg1.0": 16}, {"arg0.1": 16, "arg3.0": 2}])
def test_unbounded_dimensions_are_asked_for(dims: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="dynamic without a bound") as caught:
        from_bytes(UNBOUNDED, name="x", where="x", dims=dims)
    assert "--dim arg0.0=32" in str(caught.value)


def test_one_size_does_not_stand_for_two_dimensions_of_an_argument() -> None:
    with pytest.raises(UsageError, match="dimension 0 of argument 0"):
        from_bytes(TWO_UNKNOWN, name="x", where="x", dims={"B": 16})
    assert "tensor<16x8xf32>" in from_bytes(TWO_UNKNOWN, name="x", where="x", dims={"arg0.0": 16, "arg0.1": 8}).text


@pytest.mark.parametrize("serialised", [False, True])
def test_symbolic_exports_equal_the_static_program(serialised: bool) -> None:
    exported = _exported(_layers, ("2b", 8), (8, 8))
    options = CaptureOptions(dims={"b": 16})
    program = load(bytes(exported.serialize()) if serialised else exported, options)
    assert [a.name for a in program.arguments] == ["x", "w"]
    assert "shape_assertion" not in program.text
    shapes = (jax.ShapeDtypeStruct((32, 8), jnp.float32), jax.ShapeDtypeStruct((8, 8), jnp.float32))
    expected = predict(capture(_layers, *shapes))
    assert predict(program).flops == pytest.approx(expected.flops, rel=0.02)


def test_symbolic_names_are_asked_for() -> None:
    with pytest.raises(UsageError, match="symbolic dimension 'b'") as caught:
        from_exported(_exported(_layers, ("2b", 8), (8, 8)), dims={"c": 4})
    assert "--dim b=32" in str(caught.value)


def test_sizes_must_meet_the_constraints_of_the_export() -> None:
    exported = _exported(_layers, ("2b", 8), (8, 8), constraints=("b <= 8",))
    assert from_exported(exported, dims={"b": 8}).devices == 1
    with pytest.raises(MeshcastError, match="b"):
        from_exported(exported, dims={"b": 9})


def test_symbolic_and_sharded(capfd: pytest.CaptureFixture[str]) -> None:
    mesh = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    size = jax.export.symbolic_shape("b")[0]

    def fn(x: Any, w: Any) -> Any:
        return jax.lax.with_sharding_constraint(jnp.tanh(x @ w), NamedSharding(mesh, P("data", "model"))).sum()

    args = (
        jax.ShapeDtypeStruct((8 * size, 64), jnp.float32, sharding=NamedSharding(mesh, P("data", None))),
        jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=NamedSharding(mesh, P(None, "model"))),
    )
    exported = jax.export.export(jax.jit(fn), platforms=("cuda",))(*args)
    prediction = predict(load(exported, CaptureOptions(dims={"b": 4})), on="dgx-h100")
    assert prediction.mesh == {"data": 4, "model": 2}
    assert prediction.communication_bytes > 0
    assert prediction.flops >= 2 * (32 // 4) * 64 * (64 // 2)
    assert capfd.readouterr().err == ""


def test_sizes_that_depend_on_values_are_refused() -> None:
    text = b"""module {
  func.func @main(%a: tensor<?xf32>, %n: tensor<1xi32>) -> tensor<?xf32> {
    %0 = stablehlo.dynamic_reshape %a, %n : (tensor<?xf32>, tensor<1xi32>) -> tensor<?xf32>
    return %0 : tensor<?xf32>
  }
}"""
    with pytest.raises(UnsupportedError, match="dynamic"):
        from_bytes(text, name="x", where="x", dims={"arg0.0": 16})


@pytest.mark.parametrize("source", [STATIC, BOUNDED])
def test_sizes_for_nothing_are_refused(source: bytes) -> None:
    with pytest.raises(UsageError, match="--dim B=3 names no dynamic dimension") as caught:
        from_bytes(source, name="x", where="x", dims={"B": 3})
    assert "leave it out" in str(caught.value)


def test_sizes_beside_those_that_count_are_refused() -> None:
    with pytest.raises(UsageError, match=r"--dim arg3\.0=2 names") as caught:
        from_bytes(UNBOUNDED, name="x", where="x", dims={"arg0.0": 16, "arg3.0": 2})
    assert "its dynamic dimensions: arg0.0" in str(caught.value)
    with pytest.raises(UsageError, match="--dim c=4 names") as caught:
        from_exported(_exported(_layers, ("2b", 8), (8, 8)), dims={"b": 8, "c": 4})
    assert "its dynamic dimensions: b, arg0.0" in str(caught.value)


def test_sizes_for_programs_that_were_captured_are_refused() -> None:
    shape = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    lowered = jax.jit(jnp.tanh).lower(shape)
    options = CaptureOptions(dims={"B": 3})
    for target in ((jnp.tanh, (shape,)), lowered, capture(jnp.tanh, shape), "gpt2-small"):
        with pytest.raises(UsageError, match="--dim B=3"):
            load(target, options)


class _Opaque:
    """A symbolic size of a JAX that has renamed its private methods."""

    def __str__(self) -> str:
        return "2*b"


def test_a_jax_that_keeps_its_symbols_to_itself_is_told() -> None:
    symbol = JaxSymbol(_Opaque(), where="step")
    with pytest.raises(UnsupportedError, match=rf"jax {re.escape(jax.__version__)} does not tell .* 2\*b") as caught:
        symbol.evaluate({"b": 3})
    assert "--dim arg0.0=32" in str(caught.value)
