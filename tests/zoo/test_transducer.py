"""The transducer's loss: all ways of writing a text down."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import pytest

from meshcast.zoo.architectures.rnnt import transducer_loss


def test_the_loss_adds_up_every_way_through_the_lattice() -> None:
    """Three frames and two pieces: each way has three blanks, the last of them at the end, and two pieces in order."""
    frames, tokens = 3, [2, 1]
    scores = jax.random.normal(jax.random.key(0), (1, frames, len(tokens) + 1, 4))
    logs = jax.nn.log_softmax(scores, axis=-1)[0]
    total = 0.0
    for places in itertools.combinations(range(frames + len(tokens) - 1), len(tokens)):
        t, u, log = 0, 0, 0.0
        for step in range(frames + len(tokens) - 1):
            if step in places:
                log += float(logs[t, u, tokens[u]])
                u += 1
            else:
                log += float(logs[t, u, 0])
                t += 1
        total += math.exp(log + float(logs[frames - 1, len(tokens), 0]))
    assert float(transducer_loss(scores, jnp.asarray([tokens]))) == pytest.approx(-math.log(total), rel=1e-5)
