"""The zoo: published sizes, lowering without devices, and programs that learn."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshcast.errors import InfeasibleError, UsageError
from meshcast.models import build, num_parameters, zoo

PUBLISHED = {
    "llama3.2-1b": 1_235_814_400,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "gpt2-small": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "vit-b16": 86_567_656,
    "vit-l16": 304_326_632,
}

# The roles of a program's arguments, by name, and which of them it gives up.
DONATED = {
    ("params", "opt_state", "batch"): (0, 1),
    ("params", "cache", "batch"): (1,),
    ("params", "batch"): (),
}

# One small program of each kind: the mesh of eight devices it is split over, and settings that keep it small.
SMALL: list[tuple[str, dict[str, int], dict[str, Any]]] = [
    ("llama3-tiny", {"fsdp": 4, "tensor": 2}, {"seq": 16}),
    ("llama3-tiny", {"data": 2, "fsdp": 2, "tensor": 2}, {"seq": 16, "remat": "none", "sequence_parallel": True}),
    ("llama3-tiny", {"fsdp": 8}, {"seq": 16, "batch": 16, "remat": "dots", "accumulate": 2, "tied": True}),
    ("llama3-tiny-forward", {"data": 2, "tensor": 4}, {"seq": 16}),
    ("llama3-tiny-decode", {"data": 2, "tensor": 4}, {"context": 16}),
    ("llama3-tiny-decode", {"tensor": 8}, {"context": 16}),
    ("gpt2-tiny", {"data": 2, "tensor": 4}, {"seq": 16}),
    ("gpt2-tiny", {"data": 8}, {"seq": 16, "scan": False}),
    ("mixtral-tiny", {"data": 2, "expert": 4}, {"seq": 64}),
    ("mixtral-tiny", {"fsdp": 2, "expert": 2, "tensor": 2}, {"seq": 64}),
    ("resnet-tiny", {"data": 8}, {"batch": 16}),
    ("vit-tiny", {"data": 8}, {"batch": 8}),
    ("dlrm-tiny", {"data": 8}, {"batch": 16}),
    ("dlrm-tiny", {"data": 8}, {"batch": 16, "placement": "row"}),
    ("mlp-tiny", {"data": 2, "tensor": 4}, {"batch": 16}),
    ("mlp-tiny", {"data": 2, "tensor": 4}, {"batch": 16, "scheme": "scatter"}),
    ("mlp-tiny", {"data": 2, "tensor": 4}, {"batch": 16, "scheme": "ring"}),
]

LEARNING: list[tuple[str, dict[str, Any]]] = [
    ("llama3-tiny", {"seq": 16, "batch": 4, "layers": 1}),
    ("gpt2-tiny", {"seq": 16, "batch": 4, "layers": 1}),
    ("mixtral-tiny", {"seq": 16, "batch": 4, "layers": 1}),
    ("resnet-tiny", {"batch": 8, "blocks": (1,)}),
    ("dlrm-tiny", {"batch": 16}),
    ("mlp-tiny", {"batch": 16}),
]


# Compiling quickly matters more here than running quickly.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def lowered(program: tuple[Any, tuple[Any, ...], dict[str, Any]]) -> str:
    fn, args, options = program
    return jax.jit(fn, **options).trace(*args).lower(lowering_platforms=("cuda",)).as_text()


def concrete(args: tuple[Any, ...], roles: list[str]) -> list[Any]:
    """Arrays for abstract arguments: scaled random weights, zero state, integers below the smallest vocabulary."""
    rng = np.random.default_rng(0)

    def weight(path: Any, leaf: Any) -> jax.Array:
        name = jax.tree_util.keystr(path[-1:])
        if "norm" in name or "scale" in name:
            return jnp.full(leaf.shape, 0.0 if "bias" in name else 1.0, leaf.dtype)
        scale = leaf.shape[-2] ** -0.5 if len(leaf.shape) > 1 else 0.0
        return jnp.asarray(rng.normal(0, scale, leaf.shape), leaf.dtype)

    def datum(leaf: Any) -> jax.Array:
        if jnp.issubdtype(leaf.dtype, jnp.integer):
            return jnp.asarray(rng.integers(0, 16, leaf.shape), leaf.dtype)
        return jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype)

    def zeros(leaf: Any) -> jax.Array:
        return jnp.zeros(leaf.shape, leaf.dtype)

    makers = {"opt_state": zeros, "cache": zeros, "batch": datum}
    return [
        jax.tree_util.tree_map_with_path(weight, arg) if role == "params" else jax.tree.map(makers[role], arg)
        for role, arg in zip(roles, args, strict=True)
    ]


def test_listing_imports_no_jax() -> None:
    code = "import sys; from meshcast.models import zoo; assert len(zoo()) > 30; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


@pytest.mark.parametrize("name", zoo())
def test_every_program_builds_on_one_device(name: str) -> None:
    fn, args, options = build(name)
    roles = tuple(inspect.signature(fn).parameters)
    assert len(args) == len(roles)
    assert options["donate_argnums"] == DONATED[roles]
    if name in PUBLISHED:
        assert num_parameters(args[0]) == PUBLISHED[name]


@pytest.mark.parametrize(("name", "mesh", "settings"), SMALL)
def test_lowers_without_devices(name: str, mesh: dict[str, int], settings: dict[str, Any]) -> None:
    assert "sdy.sharding" not in lowered(build(name, **settings))
    text = lowered(build(name, mesh, **settings))
    assert "mhlo.num_partitions = 8" in text
    assert all(f'"{axis}"={size}' in text for axis, size in mesh.items())


def test_largest_model_lowers_over_a_pod() -> None:
    text = lowered(build("llama3-405b", {"data": 16, "fsdp": 128, "tensor": 8}, batch=2048, seq=8192))
    assert "mhlo.num_partitions = 16384" in text


@pytest.mark.parametrize(("name", "settings"), LEARNING)
def test_loss_falls(name: str, settings: dict[str, Any]) -> None:
    fn, args, options = build(name, **settings)
    params, opt_state, batch = concrete(args, ["params", "opt_state", "batch"])
    step = jax.jit(fn, compiler_options=QUICK, **options)
    losses = []
    for _ in range(8):
        params, opt_state, loss = step(params, opt_state, batch)
        losses.append(float(loss))
    assert np.all(np.isfinite(losses))
    assert losses[-1] < losses[0]


def test_decoding_agrees_with_forward() -> None:
    length = 6
    forward, args, _ = build("llama3-tiny-forward", batch=2, seq=length, param_dtype="float32")
    params, batch = concrete(args, ["params", "batch"])
    expected = jnp.argmax(jax.jit(forward, compiler_options=QUICK)(params, batch), axis=-1)
    decode, args, options = build("llama3-tiny-decode", batch=2, context=length, param_dtype="float32")
    _, cache, _ = concrete(args, ["params", "cache", "batch"])
    step = jax.jit(decode, compiler_options=QUICK, **options)
    for position in range(length):
        inputs = {"tokens": batch["tokens"][:, position], "position": jnp.int32(position)}
        cache, following = step(params, cache, inputs)
        np.testing.assert_array_equal(following, expected[:, position])


def test_microbatches_sum_to_the_batch() -> None:
    settings = {"seq": 16, "batch": 4, "compute_dtype": "float32", "layers": 1}
    fn, args, _ = build("gpt2-tiny", **settings)
    params, opt_state, batch = concrete(args, ["params", "opt_state", "batch"])
    split, _, _ = build("gpt2-tiny", **settings, accumulate=2)
    whole = jax.jit(fn, compiler_options=QUICK)(params, opt_state, batch)
    parts = jax.jit(split, compiler_options=QUICK)(
        params, opt_state, jax.tree.map(lambda x: x.reshape(2, 2, 16), batch)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), whole[1]["m"], parts[1]["m"])
    assert float(whole[2]) == pytest.approx(float(parts[2]), rel=1e-5)


def test_weights_and_their_moments_are_sharded_alike() -> None:
    _, (params, opt_state, batch), _ = build("llama3-8b", {"fsdp": 4, "tensor": 2})
    assert params["layers"]["wq"].sharding.shard_shape((32, 4096, 4096)) == (32, 1024, 2048)
    assert opt_state["m"]["layers"]["wq"].sharding == params["layers"]["wq"].sharding
    assert batch["tokens"].sharding.shard_shape((8, 2048)) == (2, 2048)


def test_gpt_pads_the_vocabulary_only_to_split_it() -> None:
    assert build("gpt2-small")[1][0]["tokens"].shape[0] == 50257
    assert build("gpt2-small", {"tensor": 4})[1][0]["tokens"].shape[0] == 50688


def test_mistakes_are_named() -> None:
    with pytest.raises(UsageError, match="did you mean 'llama3-8b'"):
        build("llama3-8")
    with pytest.raises(UsageError, match=r"(?s)'sequence'.*settings are .*seq.*layers"):
        build("llama3-8b", sequence=1)
    with pytest.raises(UsageError, match="data, fsdp, tensor"):
        build("gpt2-small", {"pipeline": 2})
    with pytest.raises(UsageError, match="none, dots, full"):
        lowered(build("llama3-tiny", seq=16, remat="some"))
    with pytest.raises(InfeasibleError, match="attention heads: 12 is not divisible by tensor=8"):
        build("gpt2-small", {"tensor": 8})
    with pytest.raises(InfeasibleError, match="8 is not divisible by data=3"):
        build("resnet50", {"data": 3}, batch=8)
