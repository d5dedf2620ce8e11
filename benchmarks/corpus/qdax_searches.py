"""QDax: generations of MAP-Elites, and a population of agents that learn side by side."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from qdax.baselines.td3 import TD3, TD3Config
from qdax.core.containers.mapelites_repertoire import MapElitesRepertoire
from qdax.core.emitters.mutation_operators import isoline_variation
from qdax.core.emitters.standard_emitters import MixingEmitter
from qdax.core.map_elites import MAPElites
from qdax.core.neuroevolution.buffers.buffer import ReplayBuffer, Transition
from qdax.tasks.arm import arm_scoring_function
from qdax.tasks.standard_functions import rastrigin_scoring_function
from qdax.utils.metrics import default_qd_metrics

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, abstract, integers, spec

QDAX = Catalogue("qdax", "example", "optimizer")
CATALOGUES = [QDAX]


def generations(scoring: Any, genes: int, cells: int, batch: int, count: int) -> Call:
    """Generations of MAP-Elites with the variation that its examples take, and the metrics of each."""
    emitter = MixingEmitter(
        mutation_fn=lambda x, key: x,
        variation_fn=partial(isoline_variation, iso_sigma=0.005, line_sigma=0.05, minval=0.0, maxval=1.0),
        variation_percentage=1.0,
        batch_size=batch,
    )
    search = MAPElites(scoring, emitter, partial(default_qd_metrics, qd_offset=1.0))
    held = MapElitesRepertoire(
        genotypes=spec(cells, genes),
        fitnesses=spec(cells, 1),
        descriptors=spec(cells, 2),
        centroids=spec(cells, 2),
        extra_scores={},
        keys_extra_scores=(),
    )

    def run(repertoire: Any, key: Any) -> Any:
        return jax.lax.scan(search.scan_update, (repertoire, None, key), None, length=count)

    return run, (held, KEY)


QDAX.add("qdax_map_elites_arm", lambda: generations(arm_scoring_function, 32, 4096, 4096, 4), "step")
QDAX.add("qdax_map_elites_rastrigin", lambda: generations(rastrigin_scoring_function, 256, 10_000, 16_384, 2), "step")


@QDAX.program("qdax_td3_population_update", "train", group="rl")
def _() -> Call:
    agent = TD3(TD3Config(batch_size=512), action_size=8)
    make = lambda key: agent.init(key, action_size=8, observation_size=87)  # noqa: E731
    states = jax.eval_shape(jax.vmap(make), spec(64, 2, dtype=jnp.uint32))
    steps = integers(1, 64)  # every agent then updates its policy too, as each second step does
    states = states.replace(steps=steps)
    transition = Transition.init_dummy(observation_dim=87, action_dim=8)
    buffer = abstract(ReplayBuffer.init(8, transition))
    buffer = buffer.replace(data=spec(100_000, transition.flatten_dim), current_size=integers(100_000))

    def update(states: Any, buffer: Any) -> Any:
        return jax.vmap(agent.update, in_axes=(0, None), out_axes=(0, None, 0))(states, buffer)

    return update, (states, buffer)
