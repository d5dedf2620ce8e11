"""Jraph: its own networks on graphs of fixed size."""

from __future__ import annotations

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import jraph

from benchmarks.corpus.haiku_nets import inference, step
from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import cross_entropy, integers, spec

JRAPH = Catalogue("jraph", "library", "graph")
CATALOGUES = [JRAPH]


def graph(
    nodes: int, edges: int, graphs: int, width: int, edge_width: int | None = None, dtype: Any = jnp.float32
) -> Any:
    """A batch of graphs of these sizes."""
    return jraph.GraphsTuple(
        nodes=spec(nodes, width, dtype=dtype),
        edges=None if edge_width is None else spec(edges, edge_width, dtype=dtype),
        senders=integers(nodes, edges),
        receivers=integers(nodes, edges),
        n_node=integers(nodes // graphs, graphs),
        n_edge=integers(edges // graphs, graphs),
        globals=spec(graphs, 64, dtype=dtype),
    )


def mlp(*widths: int) -> Any:
    """A network over concatenated features."""
    return jraph.concatenated_args(lambda x: hk.nets.MLP(widths)(x))


@JRAPH.program("jraph_gcn_cora_train", "train")
def _() -> Call:
    def loss(batch: Any, labels: Any) -> Any:
        for width in (256, 7):
            layer = jraph.GraphConvolution(lambda x, width=width: hk.Linear(width)(x), add_self_edges=True)
            batch = layer(batch)._replace(edges=None)
            batch = batch._replace(nodes=jax.nn.relu(batch.nodes)) if width > 7 else batch
        return cross_entropy(batch.nodes, labels)

    return step(loss, graph(2708, 10556, 1, 1433), integers(7, 2708))


@JRAPH.program("jraph_gcn_arxiv_infer", "infer")
def _() -> Call:
    def logits(batch: Any) -> Any:
        for width in (256, 256, 40):
            batch = jraph.GraphConvolution(
                lambda x, width=width: jax.nn.relu(hk.Linear(width)(x)), symmetric_normalization=True
            )(batch)
        return batch.nodes

    return inference(logits, graph(169343, 1166243, 1, 128))


@JRAPH.program("jraph_gat_pubmed_train", "train")
def _() -> Call:
    def loss(batch: Any, labels: Any) -> Any:
        def query(x: Any) -> Any:
            return hk.Linear(64)(x)

        def logit(sent: Any, received: Any, _: Any) -> Any:
            return jax.nn.leaky_relu(hk.Linear(1)(jnp.concatenate([sent, received], -1)), 0.2)

        for _ in range(2):
            batch = jraph.GAT(query, logit, node_update_fn=jax.nn.elu)(batch)
        return cross_entropy(hk.Linear(3)(batch.nodes), labels)

    return step(loss, graph(19717, 88648, 1, 500), integers(3, 19717))


@JRAPH.program("jraph_interaction_network_train", "train", group="science")
def _() -> Call:
    def loss(batch: Any, target: Any) -> Any:
        for _ in range(4):
            batch = jraph.InteractionNetwork(mlp(128, 128), mlp(128, 128), include_sent_messages_in_node_update=True)(
                batch
            )
        return jnp.square(hk.Linear(3)(batch.nodes) - target).mean()

    return step(loss, graph(16384, 131072, 64, 128, 128), spec(16384, 3))


@JRAPH.program("jraph_deepsets_train", "train")
def _() -> Call:
    def loss(batch: Any, target: Any) -> Any:
        out = jraph.DeepSets(mlp(256, 256), mlp(256, 1))(batch)
        return jnp.square(out.globals[:, 0] - target).mean()

    return step(loss, graph(65536, 1, 512, 64), spec(512))


@JRAPH.program("jraph_relation_network_infer", "infer")
def _() -> Call:
    def answers(batch: Any) -> Any:
        return jraph.RelationNetwork(mlp(256, 256), mlp(256, 128))(batch).globals

    return inference(answers, graph(2048, 65536, 64, 64, 32))


@JRAPH.program("jraph_molecules_bf16_infer", "infer", "bf16")
def _() -> Call:
    def energies(batch: Any) -> Any:
        batch = jraph.GraphMapFeatures(hk.Linear(128), hk.Linear(128), hk.Linear(128))(batch)
        for _ in range(3):
            batch = jraph.GraphNetwork(mlp(128, 128), mlp(128, 128), mlp(128))(batch)
        return hk.Linear(128)(batch.globals)

    return inference(energies, graph(30000, 64000, 1024, 16, 8, dtype=jnp.bfloat16))


@JRAPH.program("jraph_segment_normalisers", "infer", origin="helper")
def _() -> Call:
    def normalised(values: Any, segments: Any) -> Any:
        options = {"num_segments": 20000}
        return (
            jraph.segment_softmax(values, segments, **options),
            jraph.segment_normalize(values, segments, **options),
            jraph.segment_variance(values, segments, **options),
            jraph.segment_min_or_constant(values, segments, **options),
        )

    return normalised, (spec(500000, 16), integers(20000, 500000))


@JRAPH.program("jraph_partition_softmax_grad", "train", origin="helper")
def _() -> Call:
    def loss(logits: Any, sizes: Any, values: Any) -> Any:
        weights = jraph.partition_softmax(logits, sizes, sum_partitions=262144)
        return jnp.square(weights[:, None] * values).sum()

    return jax.grad(loss, argnums=(0, 2)), (spec(262144), integers(32, 16384), spec(262144, 32))


@JRAPH.program("jraph_gated_messages_train", "train", "f32")
def _() -> Call:
    def loss(batch: Any, labels: Any) -> Any:
        x, width = hk.Linear(192)(batch.nodes), 192
        for _ in range(4):
            sent = hk.Linear(width)(x)[batch.senders]
            gate = jax.nn.sigmoid(hk.Linear(width)(x)[batch.receivers] + hk.Linear(width)(batch.edges))
            summed = jraph.segment_sum(sent * gate, batch.receivers, x.shape[0])
            total = jraph.segment_sum(gate, batch.receivers, x.shape[0])
            x = x + jax.nn.relu(hk.LayerNorm(-1, True, True)(hk.Linear(width)(x) + summed / (total + 1e-6)))
        return cross_entropy(hk.Linear(6)(x), labels)

    return step(loss, graph(23000, 92000, 128, 28, 4), integers(6, 23000))


@JRAPH.program("jraph_max_pooling_sage_infer", "infer", "f32")
def _() -> Call:
    def logits(batch: Any) -> Any:
        x = batch.nodes
        for width in (256, 256, 47):
            pooled = jraph.segment_max(
                jax.nn.relu(hk.Linear(128)(x))[batch.senders], batch.receivers, x.shape[0], indices_are_sorted=False
            )
            x = jax.nn.relu(hk.Linear(width)(jnp.concatenate([x, pooled], -1)))
        return x

    return inference(logits, graph(100000, 600000, 1, 100))
