"""Programs of a pipeline's parts, run one after the other, give the gradients of the whole model."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshcast.models import decoder, gpt, models
from meshcast.plans.programs import PartKind, pass_programs
from tests.models.arrays import concrete

SEQ, ROWS = 16, 2
SETTINGS: dict[str, dict[str, Any]] = {
    "gpt2-tiny": {},
    "llama3-tiny": {},
    "mixtral-tiny": {"group": 16},
    "deepseek-tiny": {"group": 16},
}


@pytest.mark.parametrize("remat", ["none", "kernels", "attention", "dots", "full"])
@pytest.mark.parametrize("name", SETTINGS)
def test_parts_make_up_the_model(name: str, remat: str) -> None:
    builder = models()[name]
    module = {"gpt": gpt, "decoder": decoder}[builder.module]
    config = builder.configured(**SETTINGS[name])
    counts = [1, config.layers - 1]
    programs, params, sections = [], [], []
    for number, layers in enumerate(counts):
        made = module.sections(config, first=sum(counts[:number]), layers=layers, seq=SEQ, remat=remat)
        kind = PartKind(first=number == 0, last=number == 1, rows=ROWS, dtype="float32")
        part = pass_programs(made, kind, lambda function, args, options: (function, args))
        programs.append(part)
        params.append(concrete((part[0][1][0],), ["params"])[0])
        sections.append(made)
    tokens, targets = jnp.asarray(np.random.default_rng(0).integers(0, 16, (2, ROWS, SEQ)), jnp.int32)

    def loss(params: Any) -> jax.Array:
        x = sections[0].embed(params[0]["entry"], {"tokens": tokens})
        x, first = sections[0].through(params[0]["layers"], x)
        x, second = sections[1].through(params[1]["layers"], x)
        value = sections[1].loss(params[1]["exit"], x, {"targets": targets})
        return value + sum(each for each in (first, second) if each is not None)

    expected = jax.grad(loss)(params)
    zeros = jax.tree.map(jnp.zeros_like, params)
    # Each program is traced on its own, as it is captured.
    (first_forward, last_forward), (first_backward, last_backward) = (
        [jax.jit(part[which][0]) for part in programs] for which in (0, 1)
    )
    y, saved = first_forward(params[0], None, {"tokens": tokens})
    _, saved_last = last_forward(params[1], y, {"targets": targets})
    dx, last = last_backward(params[1], saved_last, None, zeros[1])
    nothing, first = first_backward(params[0], saved, dx, zeros[0])
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
