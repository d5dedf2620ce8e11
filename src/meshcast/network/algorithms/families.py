"""The names of algorithms, and which of them the libraries choose from.

NCCL (and RCCL, which follows it) has rings, double trees, trees of every member (PAT), and switches that add inside a node,
alone or joined by trees; SHARP across nodes must be switched on (NCCL_COLLNET_ENABLE). XLA on TPUs has rings, laid along the
dimensions of a torus where these close, and gathers small inputs in one shot. AWS Neuron has rings along a torus, meshes in which
everybody sends to everybody, and recursive doubling and halving, level by level (AWS Neuron documentation, intra-node and
inter-node collective communications). Gaudi's HCCL is taken to send over the wires that join every pair of a server, and across
servers in steps that halve and double, which is an assumption. The textbook takes whatever is fastest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from meshcast.hardware import Library
from meshcast.network.algorithms import exchanges, hierarchical, in_network, pat, rings, trees
from meshcast.network.plan import CollectivePlan
from meshcast.network.ports import wraps
from meshcast.network.steps import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmFamily:
    """An algorithm by name: how it is carried out, and by which library it is considered."""

    name: str
    make: Callable[[Problem], CollectivePlan | None]
    nicknames: tuple[str, ...] = ()
    considered: Callable[[Library, Problem], bool]


def _by(*libraries: Library) -> Callable[[Library, Problem], bool]:
    return lambda library, _: library in libraries


def _always(library: Library, problem: Problem) -> bool:
    return True


def _ring_considered(library: Library, problem: Problem) -> bool:
    if library not in ("xla-tpu", "neuron"):
        return library == "nccl"
    # A ring through all members where the dimensions cannot be closed into rings of their own.
    return len(problem.spread) == 1 and not wraps(problem.spread[0])


def _in_network_considered(library: Library, problem: Problem) -> bool:
    if library not in ("nccl", "none"):
        return False
    outside = [at.level for at in problem.spread if at.level.link.between_hosts]
    return all(level.in_network_asked for level in outside) if outside else len(problem.spread) == 1


def _hierarchical_considered(library: Library, problem: Problem) -> bool:
    return library in ("none", "hccl", "neuron") or (library == "xla-tpu" and len(problem.spread) > 1)


FAMILIES = (
    AlgorithmFamily(name="ring", make=rings.ring, considered=_ring_considered),
    AlgorithmFamily(name="bidirectional-ring", make=rings.bidirectional_ring, considered=_by("none")),
    AlgorithmFamily(name="torus-rings", make=rings.torus_rings, considered=_by("none", "xla-tpu", "neuron")),
    AlgorithmFamily(name="hierarchical", make=hierarchical.hierarchical, considered=_hierarchical_considered),
    AlgorithmFamily(
        name="halving-doubling",
        make=hierarchical.halving_doubling,
        nicknames=("recursive-doubling",),
        considered=_by("none", "neuron", "hccl"),
    ),
    AlgorithmFamily(
        name="hierarchical + halving-doubling",
        make=hierarchical.halved_between_rings,
        nicknames=("rdh",),
        considered=_by("none", "neuron"),
    ),
    AlgorithmFamily(name="direct", make=hierarchical.direct, considered=_by("none", "neuron", "hccl")),
    AlgorithmFamily(name="direct", make=exchanges.pairwise, considered=_always),
    AlgorithmFamily(name="direct", make=exchanges.permute, considered=_always),
    AlgorithmFamily(name="one-shot", make=exchanges.one_shot, considered=_by("none", "xla-tpu", "neuron")),
    AlgorithmFamily(
        name="double-binary-tree", make=trees.double_binary_tree, nicknames=("tree",), considered=_by("nccl")
    ),
    AlgorithmFamily(name="pat", make=pat.pat, considered=_by("nccl")),
    AlgorithmFamily(name="tree", make=hierarchical.broadcast_tree, considered=_by("none", "xla-tpu", "neuron", "hccl")),
    AlgorithmFamily(
        name="in-network", make=in_network.in_network, nicknames=("nvls", "sharp"), considered=_in_network_considered
    ),
    AlgorithmFamily(
        name="in-network + double-binary-tree",
        make=trees.in_network_tree,
        nicknames=("nvls-tree",),
        considered=_by("nccl"),
    ),
)  # fmt: skip
