"""Adapters of low rank: what is trained, what is not, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from meshcast import load, predict
from meshcast.base.errors import UsageError
from meshcast.jobs.planned import Plan, model_of
from meshcast.jobs.planned.settings import step_settings
from meshcast.workload import read_workload
from meshcast.zoo import build, joined, models, num_parameters, parted
from tests.quick_compiling import QUICK
from tests.zoo.arrays import concrete


def _matrix_flops(**settings: Any) -> float:
    program = load("llama3-8b", settings={key: str(value) for key, value in settings.items()})
    return sum(read_workload(program).totals.matrix_flops.values())


def test_parts_of_a_tree_join_again() -> None:
    tree = {"head": 1, "layers": [{"wq": 2, "adapter_in": 3}, {"wq": 4, "adapter_in": 5}], "exit": {"norm": 6}}
    trained, frozen = parted(tree)
    assert trained == {"layers": [{"adapter_in": 3}, {"adapter_in": 5}], "exit": {}}
    assert joined(trained, frozen) == tree


def test_adapters_of_llama_2_70b() -> None:
    """Rank 16 beside 8,192 to 10,240 and 8,192 to 8,192 in 80 layers: 80 x 16 x (18,432 + 16,384) = 44,564,480 (MLPerf 4.0)."""
    builder = models()["llama2-70b"]
    module_weights = __import__("meshcast.zoo.architectures.decoder", fromlist=["weights"]).weights
    trained, frozen = parted(module_weights(builder.configured(lora=16)))
    assert num_parameters(trained) == 44_564_480
    assert num_parameters(frozen) == builder.parameters()


def test_a_step_is_two_thirds_of_the_products() -> None:
    """Weights have no gradients: of three products of each two are left, and all of attention's own."""
    seq, layers = 4096, 32
    config = models()["llama3-8b"].config
    attention = 12 * layers * config.dim * seq * seq
    whole = _matrix_flops(batch=1, seq=seq, remat="autodiff") - attention
    adapted = _matrix_flops(batch=1, seq=seq, remat="autodiff", lora=16) - attention
    assert adapted / whole == pytest.approx(2 / 3, rel=0.01)


def test_only_adapters_learn() -> None:
    step, args, options = build("llama3-tiny", batch=2, seq=16, lora=4)
    params, state, batch = concrete(args, ["params", "opt_state", "batch"])
    stepped = jax.jit(step, donate_argnums=(), compiler_options=QUICK)(params, state, batch)[0]
    before, after = parted(params), parted(stepped)
    for one, other in zip(jax.tree.leaves(before[1]), jax.tree.leaves(after[1]), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    assert all(
        np.any(np.asarray(one) != np.asarray(other))
        for one, other in zip(jax.tree.leaves(before[0]), jax.tree.leaves(after[0]), strict=True)
    )
    assert options["donate_argnums"] == (0, 1)


@pytest.mark.parametrize("plan", ["dp=2,tp=2,zero=1", "pp=2,dp=2,mbs=1", "fsdp=4"])
def test_any_plan_trains_adapters(plan: str) -> None:
    settings = {"batch": 8, "seq": 64}
    whole, adapted = (
        predict("llama3-tiny", on="dgx-h100", devices=4, plan=plan, settings={**settings, **more})
        for more in ({}, {"lora": 4})
    )
    assert adapted.memory.by_role["optimizer_state"] < whole.memory.by_role["optimizer_state"] / 4


def test_latent_attention_has_no_adapters() -> None:
    with pytest.raises(UsageError, match="lora=8: adapters stand beside plain projections alone"):
        models()["deepseek-tiny"].configured(lora=8)


def _saved(plan: str, **settings: int) -> int:
    """Bytes that the scan over layers hands on to the backward pass, of what is stacked by layer."""
    builder = model_of("llama3-tiny")
    chosen = Plan.parse(plan)
    fn, args, _ = builder(chosen.mesh, **step_settings(chosen, builder, {"seq": 32, "layers": 5, **settings}))
    return max(_stacked(jax.make_jaxpr(fn)(*args).jaxpr), default=0)


def _stacked(jaxpr: Any) -> Iterator[int]:
    """Bytes of the results by turn of every scan of five turns, of those nested inside too."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "scan" and equation.params["length"] == 5 and not equation.params["reverse"]:
            stacked = equation.outvars[equation.params["num_carry"] :]
            yield sum(math.prod(value.aval.shape) * value.aval.dtype.itemsize for value in stacked)
        for inner in jaxprs_in_params(equation.params):
            yield from _stacked(inner)


def test_replicas_with_microbatches_save_no_frozen_weights() -> None:
    """A microbatch of one sequence on each of two replicas saves what one device does, and no weights beside it."""
    assert _saved("dp=2,mbs=1", batch=8, lora=4) == _saved("dp=1,mbs=1", batch=4, lora=4)


def test_inputs_of_frozen_products_are_not_kept() -> None:
    """In fp8 the inputs of a layer's products: 64 numbers of a token before and in attention, 64 and 128 in its second half."""
    for precision in ("fp8", "fp8-rowwise"):
        kept = [_saved(f"dp=1,mbs=1,precision={precision}", batch=1, lora=lora) for lora in (0, 4)]
        assert kept[1] < kept[0]
    plain, narrow = (_saved(f"dp=1,mbs=1,precision={p}", batch=1, lora=4) for p in ("bf16", "fp8"))
    assert narrow == plain
