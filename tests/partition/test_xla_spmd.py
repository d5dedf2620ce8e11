"""XLA's own partitioner on virtual devices: the collectives a real run would have, to check Shardy's against."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from meshcast.base.errors import InputError, UnsupportedError, UsageError
from meshcast.partition import xla_spmd
from meshcast.programs import hlo_text, mlir

MESH = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def sharding(*axes: str | None) -> NamedSharding:
    return NamedSharding(MESH, PartitionSpec(*axes))


def argument(shape: tuple[int, ...], *axes: str | None) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding(*axes))


@pytest.fixture(scope="module")
def two_layers() -> str:
    """Two matrix products, Megatron style: columns then rows of the weights over `model`, rows of x over `data`."""

    def forward(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
        return jnp.maximum(x @ up, 0) @ down

    shapes = argument((32, 64), "data", None), argument((64, 128), None, "model"), argument((128, 64), "model", "data")
    lowered = jax.jit(forward, out_shardings=sharding("data", None)).trace(*shapes).lower(lowering_platforms=("cuda",))
    return lowered.as_text()


def collectives(stablehlo: str) -> list[tuple[str, str]]:
    """(kind, groups) of every collective, in order."""
    pattern = r'"stablehlo\.(all_\w+|reduce_scatter|collective_permute)".*?(?:replica_groups|pairs) = dense<(.*?)>'
    return re.findall(pattern, stablehlo)


def test_two_layers_get_the_expected_collectives(two_layers: str) -> None:
    text = xla_spmd.partition(two_layers, devices=8, timeout_s=120)
    assert "num_partitions=8" in text
    stablehlo = hlo_text.to_stablehlo(text, where="partitioned")
    mlir.parse_module(stablehlo, where="partitioned")
    assert sorted(collectives(stablehlo)) == [
        ("all_gather", "[[0, 2, 4, 6], [1, 3, 5, 7]]"),
        ("all_reduce", "[[0, 1], [2, 3], [4, 5], [6, 7]]"),
    ]
    assert "(tensor<64x16xf32>) -> tensor<64x64xf32>" in stablehlo  # down's columns, gathered over data
    assert "(tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>" in stablehlo  # a device's matrix product


def test_collectives_stay_inside_the_loop_and_bytecode_is_taken() -> None:
    def step(weights: jax.Array, x: jax.Array) -> jax.Array:
        def layer(h: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
            h = jax.lax.with_sharding_constraint(h, sharding("data", None))
            return jnp.tanh(h @ w), None

        def loss(weights: jax.Array) -> jax.Array:
            return jnp.sum(jax.lax.scan(layer, x, weights)[0])

        return weights - jax.grad(loss)(weights)

    shapes = argument((6, 64, 64), None, "data", "model"), argument((32, 64), "data", None)
    lowered = jax.jit(step).trace(*shapes).lower(lowering_platforms=("cuda",))
    module = mlir.parse_module(lowered.as_text(debug_info=True), where="step")
    text = xla_spmd.partition(mlir.to_bytecode(module), devices=8, timeout_s=120)
    stablehlo = hlo_text.to_stablehlo(text, where="partitioned")
    mlir.parse_module(stablehlo, where="partitioned")
    inside = stablehlo[stablehlo.index("stablehlo.while") : stablehlo.rindex("stablehlo.return")]
    assert {kind for kind, _ in collectives(inside)} >= {"all_gather", "all_reduce"}
    assert "tensor<6x16x32xf32>" in stablehlo  # a device's share of the weights
    assert "dot_general" in stablehlo[stablehlo.rindex("}") :]  # names survive as locations


def test_temporary_files_and_children_are_gone(
    two_layers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(UnsupportedError, match=r"longer than 0\.05 s"):
        xla_spmd.partition(two_layers, devices=8, timeout_s=0.05)
    assert list(tmp_path.iterdir()) == []


def test_mesh_of_another_size_is_the_users_error(two_layers: str) -> None:
    with pytest.raises(InputError, match="4 devices but has 8"):
        xla_spmd.partition(two_layers, devices=4, timeout_s=120, where="two-layers")


def test_what_is_no_program_is_the_users_error() -> None:
    with pytest.raises(InputError, match="nonsense"):
        xla_spmd.partition("nonsense", devices=2, timeout_s=120)


def test_one_device_needs_no_partitioner() -> None:
    with pytest.raises(UsageError, match="2 to"):
        xla_spmd.partition("", devices=1)


def test_crash_is_reported_with_its_last_words(monkeypatch: pytest.MonkeyPatch, two_layers: str) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(UnsupportedError, match=r"exit 1\): without a message"):
        xla_spmd.partition(two_layers, devices=8, timeout_s=60)
