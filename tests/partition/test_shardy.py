"""Shardy's route: local shapes, explicit collectives, implied halos, any mesh size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from meshcast import zoo
from meshcast.base import ChildCrashedError, ChildFailedError
from meshcast.base.errors import InfeasibleError, UnsupportedError, UsageError
from meshcast.partition import partition, shardy
from meshcast.programs import capture, from_bytes
from meshcast.workload import Collective, Workload, read_workload
from tests.partition.conftest import MeshKit
from tests.partition.models import MESHES, program_of


def _collectives(workload: Workload) -> list[tuple[str, str, int, int]]:
    return [(c.kind, str(c.group), c.input_bytes, c.output_bytes) for c, _ in workload.collectives()]


def _read(program: Any, **options: Any) -> Workload:
    return read_workload(partition(program, **options))


def test_a_contracted_sharded_dimension_becomes_an_all_reduce(kit: MeshKit) -> None:
    workload = _read(kit.capture(jnp.matmul, kit.shape((64, 32), None, "x"), kit.shape((32, 16), "x", None)))
    assert _collectives(workload) == [("all_reduce", "x", 64 * 16 * 4, 64 * 16 * 4)]
    assert workload.totals.matrix_flops == {"f32": 2 * 64 * 16 * 32 / 4}


def test_fsdp_gathers_weights_and_scatters_gradients(kit: MeshKit) -> None:
    def loss(w: Any, x: Any) -> Any:
        return jnp.sum(kit.constrain(x @ w, "x") ** 2)

    def step(w: Any, x: Any) -> Any:
        return w - kit.constrain(jax.grad(loss)(w, x), "x")

    workload = _read(kit.capture(step, kit.shape((32, 32), "x"), kit.shape((64, 32), "x")))
    kinds = [kind for kind, *_ in _collectives(workload)]
    assert sorted(kinds) == ["all_gather", "reduce_scatter"]
    gather = next(c for c, _ in workload.collectives() if c.kind == "all_gather")
    assert (gather.input_bytes, gather.output_bytes) == (32 * 32, 32 * 32 * 4)
    assert gather.sent_bytes == 3 / 4 * 32 * 32 * 4


def test_all_to_all_between_dimensions(kit: MeshKit) -> None:
    def move(a: Any) -> Any:
        return kit.constrain(kit.constrain(a * 2, "x", None) + 1, None, "x")

    assert [kind for kind, *_ in _collectives(_read(kit.capture(move, kit.shape((64, 16), "x", None))))] == [
        "all_to_all"
    ]


@pytest.mark.parametrize(
    ("name", "function", "spec", "moved"),
    [
        # Bytes the worst shard receives: rows of 16 f32.
        ("slice", lambda a: a[3:35], ("x",), 8 * 64),
        (
            "pad",
            lambda a: jnp.pad(a, ((1, 7), (0, 0))),
            ("x",),
            5 * 64,
        ),  # shard 2 of [18 rows] needs rows 35 to 52, holds 32 to 47
        ("reverse", lambda a: a[::-1], ("x",), 16 * 64),
    ],
)
def test_shifts_along_a_sharded_dimension_imply_a_halo(
    kit: MeshKit, name: str, function: Any, spec: Any, moved: int
) -> None:
    workload = _read(kit.capture(lambda a: kit.constrain(function(a), *spec), kit.shape((64, 16), "x")))
    (collective,) = [c for c, _ in workload.collectives()]
    assert (collective.kind, collective.reason, collective.payload_bytes) == ("collective_permute", "halo", moved)


def test_a_spatially_sharded_convolution_exchanges_its_border(kit: MeshKit) -> None:
    def blur(image: Any, kernel: Any) -> Any:
        out = jax.lax.conv_general_dilated(image, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return kit.constrain(out, None, "x")

    workload = _read(kit.capture(blur, kit.shape((2, 64, 32, 8), None, "x"), kit.shape((3, 3, 8, 8))))
    (collective,) = [c for c, _ in workload.collectives()]
    assert collective.payload_bytes == 2 * 2 * 32 * 8 * 4  # one row above and one below, both images


def test_a_sharded_cumulative_sum_passes_on_its_carry(kit: MeshKit) -> None:
    workload = _read(kit.capture(lambda a: kit.constrain(jnp.cumsum(a, 0), "x"), kit.shape((64, 16), "x")))
    assert [(c.kind, c.payload_bytes) for c, _ in workload.collectives()] == [("collective_permute", 64)]


def test_sums_of_partial_sums_are_reduced_once(kit: MeshKit) -> None:
    def two(a: Any, b: Any, c: Any, d: Any) -> Any:
        return a @ b + c @ d

    shapes = [kit.shape((64, 32), None, "x"), kit.shape((32, 16), "x", None)] * 2
    program = kit.capture(two, *shapes)
    assert [kind for kind, *_ in _collectives(_read(program))] == ["all_reduce"]
    assert [kind for kind, *_ in _collectives(_read(program, optimise=False))] == ["all_reduce"] * 2


def test_a_value_is_gathered_once_for_all_its_uses(kit: MeshKit) -> None:
    def twice(w: Any, x: Any) -> Any:
        return kit.constrain(x @ w, "x"), kit.constrain(x @ w.T, "x")

    program = kit.capture(twice, kit.shape((32, 32), "x"), kit.shape((64, 32), "x"))
    for optimise in (True, False):
        kinds = [kind for kind, *_ in _collectives(_read(program, optimise=optimise))]
        assert kinds.count("all_gather") <= 2  # w and its transpose at most
    same = kit.capture(lambda w, x: (kit.constrain(x @ w, "x"), kit.constrain(x @ w * 2, "x")), *program_shapes(kit))
    assert [kind for kind, *_ in _collectives(_read(same))] == ["all_gather"]


def program_shapes(kit: MeshKit) -> tuple[Any, Any]:
    return kit.shape((32, 32), "x"), kit.shape((64, 32), "x")


def test_hybrid_sharding_scatters_inside_and_reduces_across(kit: MeshKit) -> None:
    def gradient(x: Any, g: Any) -> Any:
        return kit.constrain(x.T @ g, "y", None)

    batch = ("x", "y")
    workload = _read(kit.capture(gradient, kit.shape((64, 32), batch), kit.shape((64, 16), batch)))
    assert _collectives(workload) == [
        ("reduce_scatter", "y", 32 * 16 * 4, 16 * 16 * 4),
        ("all_reduce", "x", 16 * 16 * 4, 16 * 16 * 4),
    ]


def test_loops_inside_shard_map_keep_local_shapes(kit: MeshKit) -> None:
    from jax.sharding import PartitionSpec as P

    def body(w: Any, x: Any) -> Any:
        y, _ = jax.lax.scan(lambda h, layer: (jax.lax.psum(h @ layer, "y"), None), x, w)
        return y

    mapped: Callable[..., jax.Array] = jax.shard_map(
        body, mesh=kit.mesh, in_specs=(P(None, "y", None), P("x", "y")), out_specs=P("x", None), check_vma=False
    )
    workload = _read(
        kit.capture(lambda w, x: mapped(w, x), kit.shape((3, 32, 16), None, "y"), kit.shape((64, 32), "x", "y"))
    )
    assert workload.totals.matrix_flops == {"f32": 3 * 2 * 16 * 16 * 16}
    (collective, count) = next(iter(workload.collectives()))
    assert (collective.kind, str(collective.group), count) == ("all_reduce", "y", 3)


@pytest.mark.parametrize("name", MESHES)
def test_model_programs_partition(name: str) -> None:
    workload = _read(program_of(name))
    assert workload.devices == 8
    assert workload.totals.collective_bytes
    assert all(isinstance(c, Collective) and c.group.axes for c, _ in workload.collectives())


def test_131072_devices_keep_groups_compact() -> None:
    mesh = {"data": 128, "fsdp": 128, "tensor": 8}
    settings = {"batch": 16384, "seq": 16, "heads": 8, "kv_heads": 8, "dim": 1024, "ffn": 2048, "vocab": 2048}
    accepted = zoo.zoo()["llama3-tiny"].overrides()
    function, arguments, options = zoo.build(
        "llama3-tiny", mesh=mesh, **{k: v for k, v in settings.items() if k in accepted}
    )
    workload = _read(capture(function, *arguments, name="llama", options=options))
    assert workload.devices == 131072
    for collective, _ in workload.collectives():
        assert len(collective.group.dims) <= 3
        assert collective.group.size in (8, 128, 1024, 16384, 131072)


def test_the_mesh_can_be_overridden(kit: MeshKit) -> None:
    program = kit.capture(jnp.matmul, kit.shape((64, 32), None, "x"), kit.shape((32, 16), "x", None))
    workload = _read(program, mesh={"x": 16})
    assert (workload.devices, workload.totals.matrix_flops) == (32, {"f32": 2 * 64 * 16 * 32 / 16})


def test_a_mesh_that_does_not_divide_is_infeasible(kit: MeshKit) -> None:
    program = kit.capture(jnp.matmul, kit.shape((64, 32), None, "x"), kit.shape((32, 16), "x", None))
    with pytest.raises(InfeasibleError, match="size 32, which 5 devices"):
        partition(program, mesh={"x": 5})


def test_an_unknown_axis_is_named(kit: MeshKit) -> None:
    program = kit.capture(jnp.sin, kit.shape((64,), "x"))
    with pytest.raises(UsageError, match="no axis 'z'"):
        partition(program, mesh={"z": 5})


def test_an_unsharded_program_is_flattened_and_the_original_left_alone() -> None:
    def twice(x: Any) -> Any:
        return jax.nn.softmax(x) + jax.nn.softmax(x)

    program = capture(twice, jax.ShapeDtypeStruct((8, 8), "float32"), name="twice")
    before = program.text
    flat = partition(program)
    assert program.text == before
    assert "call @" not in flat.text
    assert flat.text.count("stablehlo.exponential") == 1  # the second softmax is the first


COMPOSITE = """
func.func public @main(%x: tensor<64xf32>) -> tensor<64xf32> {
  %0 = stablehlo.composite "mine.twice" %x {decomposition = @impl} : (tensor<64xf32>) -> tensor<64xf32>
  %1 = stablehlo.composite "mine.twice" %0 {decomposition = @impl} : (tensor<64xf32>) -> tensor<64xf32>
  return %1 : tensor<64xf32>
}
func.func private @impl(%x: tensor<64xf32>) -> tensor<64xf32> {
  %0 = func.call @inner(%x) : (tensor<64xf32>) -> tensor<64xf32>
  return %0 : tensor<64xf32>
}
func.func private @inner(%x: tensor<64xf32>) -> tensor<64xf32> {
  %0 = stablehlo.add %x, %x : tensor<64xf32>
  return %0 : tensor<64xf32>
}"""


def test_composites_keep_their_decompositions() -> None:
    workload = _read(from_bytes(COMPOSITE.encode(), name="composite", where="composite.mlir"))
    assert workload.totals.vector_flops == {"f32": 128.0}


def test_a_program_that_calls_itself_is_refused() -> None:
    text = """
    func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
      %0 = func.call @f(%x) : (tensor<8xf32>) -> tensor<8xf32>
      return %0 : tensor<8xf32>
    }
    func.func private @f(%x: tensor<8xf32>) -> tensor<8xf32> {
      %0 = func.call @f(%x) : (tensor<8xf32>) -> tensor<8xf32>
      return %0 : tensor<8xf32>
    }"""
    with pytest.raises(UnsupportedError, match="@f -> @f"):
        partition(from_bytes(text.encode(), name="recursive", where="recursive.mlir"))


def test_shard_map_regions_fix_the_mesh(kit: MeshKit) -> None:
    from jax.sharding import PartitionSpec as P

    mapped: Callable[..., jax.Array] = jax.shard_map(
        lambda x: jax.lax.psum(x, "x"), mesh=kit.mesh, in_specs=P("x"), out_specs=P()
    )
    program = kit.capture(lambda x: mapped(x), kit.shape((64,), "x"))
    with pytest.raises(UsageError, match="shard_map regions"):
        partition(program, mesh={"x": 8})


def test_an_associative_scan_over_a_sharded_dimension_partitions(kit: MeshKit) -> None:
    program = kit.capture(lambda x: kit.constrain(jax.lax.associative_scan(jnp.add, x), "x"), kit.shape((64, 16), "x"))
    assert _read(program).totals.vector_flops["f32"] > 0


def test_what_brings_shardy_down_is_asked_again_with_the_verifier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes run unverified, three times as fast; a module that one of them spoilt is told by the verifier then."""
    asked: list[bool] = []

    def request(said: dict[str, Any], data: bytes) -> bytes:
        asked.append(said["verify"])
        if not said["verify"]:
            raise ChildCrashedError(-6, "")
        raise ChildFailedError("error: 'stablehlo.add' op requires equal types")

    monkeypatch.setattr(shardy, "_child", SimpleNamespace(request=request))
    shardy._answer.cache_clear()
    text = (Path(__file__).parents[1] / "fixtures" / "sharded.mlir").read_bytes()
    with pytest.raises(UnsupportedError, match="requires equal types"):
        shardy.partition(from_bytes(text, name="sharded", where="sharded.mlir"))
    assert asked == [False, True]
    shardy._answer.cache_clear()
