"""What the backward pass finds in memory: values marked in the models, and the policies of `jax.checkpoint` that save them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name

from meshcast.zoo.fused_attention import (
    PRIMITIVES as FUSED,  # what these kernels return is what their backward pass asks for
)
from meshcast.zoo.words import Remat as Remat

KEPT, ATTENTION, HEADS, ODD_PRODUCT, _MERGED = (
    "kept",
    "kept by attention",
    "kept heads",
    "an odd product",
    "merged of fused kernels",
)
EXCHANGED = "kept as it came from other devices"


def kept(x: jax.Array, name: str = KEPT) -> jax.Array:
    """A value that the backward pass of kernels written by hand reads: `remat="none"` saves these and no others.

    They are what training frameworks save: the input of every product, norm and activation, once and in the precision it is
    passed on in. What a norm or an activation makes of its input on the way is made again inside of its backward kernel.
    For a GPT layer of width h on s b tokens that is, in bf16 and without dropout's masks, the sum of Korthikanti 2022,
    section 4.1: s b h (2 + 2 + 6 + 2 + 2 + 2 + 8 + 8) bytes and the softmax's 2 a s^2 b.

    Under the name `ATTENTION`, and `HEADS` for queries, keys and values, it is saved also where the feed-forward half and the
    norms are computed again, as `EXCHANGED` also where only element-wise work is: nobody moves tokens to their experts twice to
    save memory.
    """
    named: jax.Array = checkpoint_name(x, name)
    return named


def fused_result(x: jax.Array) -> jax.Array:
    """What several fused kernels' results are merged into: saved where a kernel's own result is, and instead of them."""
    return kept(x, _MERGED)


@jax.custom_vjp
def asked_for(results: Any) -> Any:
    """Results that the backward pass computes again before it begins, whether or not it reads them.

    PyTorch's reentrant checkpoints run a layer's forward pass again to its end and differentiate that (`CheckpointFunction` of
    torch.utils.checkpoint, of Megatron Core's tensor_parallel/random.py and of DeepSpeed's activation checkpointing): the last
    product and what is exchanged behind it are computed for nobody. JAX drops them, as do checkpoints that are not reentrant,
    which stop early from PyTorch 2.1 on.
    """
    return results


def _asked_forward(results: Any) -> tuple[Any, Any]:
    return results, results


def _asked_backward(results: Any, gradients: Any) -> tuple[Any]:
    gradients, _ = jax.lax.optimization_barrier((gradients, results))
    return (gradients,)


asked_for.defvjp(_asked_forward, _asked_backward)


def _of_fused(primitive: Any, parameters: dict[str, Any]) -> bool:
    return primitive.name in FUSED or (primitive.name == "name" and parameters["name"] == _MERGED)


def _named(*names: str) -> Callable[..., bool]:
    """Saves what has one of the names, and what fused kernels return."""

    def policy(primitive: Any, *_: Any, **parameters: Any) -> bool:
        return _of_fused(primitive, parameters) or (primitive.name == "name" and parameters["name"] in names)

    return policy


POLICIES: dict[Remat, Callable[..., bool]] = {
    "autodiff": lambda primitive, *_, **__: primitive.name not in ("sharding_constraint", "name"),
    "none": _named(KEPT, ATTENTION, HEADS, EXCHANGED),
    "attention": _named(ATTENTION, HEADS),
    # Not `_named`, which saves what fused kernels return as well: here they run again, from the queries, keys and values.
    "projections": jax.checkpoint_policies.save_only_these_names(ATTENTION, HEADS),
    "heads": jax.checkpoint_policies.save_only_these_names(HEADS),
    "products": lambda primitive, *_, **given: primitive.name == "dot_general" or _named(EXCHANGED)(primitive, **given),
    "selective": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "alternate": _named(ODD_PRODUCT),
    "full": jax.checkpoint_policies.nothing_saveable,
    "whole": jax.checkpoint_policies.nothing_saveable,  # and `asked_for` has results computed again that nobody reads
}
