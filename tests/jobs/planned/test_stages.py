"""Programs of a pipeline's parts, run one after the other, give the gradients of the whole model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshcast.jobs.planned.programs import PartKind, pass_programs
from meshcast.zoo import models
from meshcast.zoo.architectures import decoder, gpt
from tests.quick_compiling import QUICK
from tests.zoo.arrays import concrete

SEQ, ROWS = 16, 2
SETTINGS: dict[str, dict[str, Any]] = {
    "gpt2-tiny": {},
    "llama3-tiny": {},
    "mixtral-tiny": {"group": 16},
    "deepseek-tiny": {"group": 16},
}


def ran(function: Callable[..., Any], *args: Any) -> Any:
    """Each program is traced on its own, as it is captured."""
    return jax.jit(function).lower(*args).compile(QUICK)(*args)


@pytest.mark.parametrize(
    ("name", "remat", "apart"),
    [
        ("gpt2-tiny", "none", True),
        ("llama3-tiny", "selective", True),
        ("mixtral-tiny", "attention", False),
        ("deepseek-tiny", "full", True),
    ],
)
def test_parts_make_up_the_model(name: str, remat: str, apart: bool) -> None:
    builder = models()[name]
    module = {"gpt": gpt, "decoder": decoder}[builder.module]
    config = builder.configured(**SETTINGS[name])
    counts = [1, config.layers - 1]
    programs, params, sections = [], [], []
    for number, layers in enumerate(counts):
        made = module.sections(config, first=sum(counts[:number]), layers=layers, seq=SEQ, remat=remat)
        kind = PartKind(first=number == 0, last=number == 1, rows=ROWS, dtype="float32")
        part = pass_programs(made, kind, lambda function, args, options: (function, args), apart=apart)
        programs.append([function for function, _ in part])
        params.append(concrete((part[0][1][0],), ["params"])[0])
        sections.append(made)
    tokens, targets = jnp.asarray(np.random.default_rng(0).integers(0, 16, (2, ROWS, SEQ)), jnp.int32)

    def loss(params: Any) -> jax.Array:
        x = sections[0].embed(params[0]["entry"], {"tokens": tokens})
        x, first = sections[0].through(params[0]["layers"], x)
        x, second = sections[1].through(params[1]["layers"], x)
        value = sections[1].loss(params[1]["exit"], x, {"targets": targets})
        return value + sum(each for each in (first, second) if each is not None)

    def backward(part: int, saved: Any, dy: Any) -> tuple[Any, Any]:
        """The gradients of a part's input and of its weights, in one program or in two."""
        zeros = jax.tree.map(jnp.zeros_like, params[part])
        _, back, *weight = programs[part]
        if not apart:
            return ran(back, params[part], saved, dy, zeros)
        dx, kept = ran(back, params[part], saved, dy)
        return dx, ran(weight[0], params[part], saved, kept, zeros)

    expected = ran(jax.grad(loss), params)
    y, saved = ran(programs[0][0], params[0], None, {"tokens": tokens})
    _, saved_last = ran(programs[1][0], params[1], y, {"targets": targets})
    dx, last = backward(1, saved_last, None)
    nothing, first = backward(0, saved, dx)
    assert nothing is None
    for found, wanted in zip(jax.tree.leaves([first, last]), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-5)


def test_what_is_saved_are_layer_inputs_with_full_recomputation() -> None:
    """Of each layer its input, of the loss the logits and what they are made of; never a weight."""
    config = models()["gpt2-tiny"].configured(layers=4)
    sections = gpt.sections(config, first=0, layers=4, seq=SEQ, remat="full")
    kind = PartKind(first=False, last=False, rows=ROWS, dtype="bfloat16")
    _, backward = pass_programs(sections, kind, lambda function, args, _: args)
    saved = backward[1]
    assert [leaf.shape for leaf in saved] == [(4, ROWS, SEQ, config.dim)]
