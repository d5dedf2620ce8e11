"""When the last NPU of a collective is done, by ASTRA-sim's rules: on its own networks, and on clusters of ours."""

from __future__ import annotations

import math
from typing import Literal

from meshcast.base import UnsupportedError, pairs_of
from meshcast.hardware import AstraNetwork, Cluster, Device, cluster_network, level_dimensions
from meshcast.network.astra.config import ASTRA_KINDS, AstraBackend, AstraKind, AstraSystem, implementations
from meshcast.network.astra.outside import run_collective
from meshcast.network.astra.phases import chunk_phases
from meshcast.network.astra.simulation import foldable, simulate
from meshcast.network.astra.subsets import message_ns, subset_ns
from meshcast.network.astra.wires import between
from meshcast.network.plan import CollectivePlan, Primitive, Stage
from meshcast.network.setting import WholeJob
from meshcast.network.spread import LevelSpread, spread_over_levels
from meshcast.network.steps import PHASES
from meshcast.workload import Collective

AstraSource = Literal["preset", "astra-sim"]
# As in the example systems that ASTRA-sim comes with.
SPLITS, ENDPOINT_DELAY_NS = 4, 10


def finish_ns(
    network: AstraNetwork, system: AstraSystem, kind: AstraKind, size: int, backend: AstraBackend = "Unaware"
) -> int:
    """Whole nanoseconds of one collective over all NPUs, alone on the network.

    Args:
        network: Its dimensions.
        system: Algorithms, chunks, delays.
        kind: The collective.
        size: Bytes as ASTRA-sim counts them: what an NPU starts with; of an all-gather its own shard.
        backend: With or without queues at the links.

    Raises:
        UsageError: Network, system and size do not go together.
        UnsupportedError: ASTRA-sim has no such algorithm, or not here, or the system has a part that is not modelled.
        InfeasibleError: Messages would be empty, or it would never end.
    """
    for key in ("model-shared-bus", "replay-only", f"{kind.replace('_', '-')}-implementation-custom"):
        if system.others.get(key):
            raise UnsupportedError(
                f"{key} {system.others[key]!r} is not in our preset of ASTRA-sim's rules",
                where="system", fix=f"take {key} out, or use ASTRA-sim itself (--network astra-sim)",
            )  # fmt: skip
    chunks = chunk_phases(network, system, kind, size)
    return simulate(network, system, chunks, backend, folded=foldable(network, chunks, backend))


def without_effect(network: AstraNetwork, system: AstraSystem, kind: AstraKind) -> tuple[str, ...]:
    """Settings that one collective of this kind, alone, does not feel, by their keys."""
    patterns = {chosen.pattern for chosen in implementations(network, system, kind)}
    idle = ["scheduling-policy"]
    if kind != "all_reduce" or len(system.all_reduce) == 1:
        idle.append("collective-optimization")
    if kind in ("all_gather", "all_to_all") and "doubleBinaryTree" not in patterns:
        idle.append("local-mem-bw")
    if system.active_chunks > system.splits:
        idle.append("active-chunks-per-dimension")
    return (*idle, *system.others)


def preset_system(network: AstraNetwork, device: Device) -> AstraSystem:
    """The system layer as ASTRA-sim's examples set it up: rings in every dimension, four chunks, localBWAware.

    Where every pair has a link, and in all-to-alls over a switch, messages go directly.
    """
    shapes = [dimension.shape for dimension in network.dimensions]
    reducing = tuple("direct" if shape == "FullyConnected" else "ring" for shape in shapes)
    return AstraSystem(
        all_reduce=reducing, all_gather=reducing, reduce_scatter=reducing,
        all_to_all=tuple("ring" if shape == "Ring" else "direct" for shape in shapes),
        splits=SPLITS, endpoint_delay_ns=ENDPOINT_DELAY_NS, optimisation="localBWAware",
        local_memory_bandwidth=device.memory_bandwidth / 1e9,
    )  # fmt: skip


def astra_plan(
    collective: Collective, cluster: Cluster, backend: AstraBackend = "Unaware", source: AstraSource = "preset",
    job: WholeJob | None = None,
) -> CollectivePlan:  # fmt: skip
    """A program's collective by ASTRA-sim's rules, its groups' spread over a cluster's levels taken for dimensions.

    Latency is what the same collective takes with a byte a message; all the rest lies on the slowest level, in one stage: an
    answer of a simulation, not steps to be simulated again. Other groups of the same collective run beside it and, as
    everywhere in ASTRA-sim, do not touch it.

    A group of some devices of a `job` is a ring through its members on the job's network (`subsets`), the slowest of all
    groups. ASTRA-sim itself (`source`) is asked about a group as if it were all there is, and so is a group without a job.

    Raises:
        UnsupportedError: ASTRA-sim has no such collective, or the group does not fill the levels evenly.
    """
    spread = spread_over_levels(collective.group, cluster)
    if not spread:
        return CollectivePlan(kind=collective.kind, algorithm="none", why="a group of one has nothing to send")
    if job is not None and source == "preset" and (rows := _subsets(collective, job)):
        return _subset_plan(collective, job, rows, spread, backend)
    network = _spread_network(spread, cluster)
    if collective.kind == "collective_permute":
        total, latency = _message_ns(collective, network)
        return _plan(collective, "permute", ("direct",), spread[-1], (total * 1e-9, latency * 1e-9), source)
    kind = _kind(collective)
    system = preset_system(network, cluster.device)

    def seconds(size: int) -> float:
        if source == "astra-sim":
            return run_collective(network, system, kind, size, backend).seconds
        return finish_ns(network, system, kind, size, backend) * 1e-9

    least = system.splits * (1 if kind == "all_gather" else network.npus)
    slowest = max(spread, key=lambda at: (1 / at.below - 1 / at.within) / at.level.bandwidth)
    times = (seconds(max(least, collective.input_bytes)), seconds(least))
    return _plan(collective, kind, system.names(kind), slowest, times, source)


def _subsets(collective: Collective, job: WholeJob) -> list[tuple[int, ...]]:
    """The groups of a collective, in the order of their rings; none where all devices are in one."""
    rows = [tuple(sorted(map(int, row))) for row in collective.group.rows()]
    if collective.kind != "collective_permute" and any(len(row) == job.devices for row in rows):
        return []
    return [row for row in rows if len(row) > 1]


def _subset_plan(
    collective: Collective, job: WholeJob, rows: list[tuple[int, ...]], spread: tuple[LevelSpread, ...], backend: AstraBackend
) -> CollectivePlan:  # fmt: skip
    network = cluster_network(job.cluster, job.devices)
    if collective.kind == "collective_permute":
        if collective.pairs:
            sources, targets = pairs_of(collective.pairs)
            pairs = set(zip(sources.tolist(), targets.tolist(), strict=True))
        else:
            pairs = {pair for row in rows for pair in zip(row, (*row[1:], row[0]), strict=True)}
        ways = {between(network, *pair): pair for pair in sorted(pairs)}  # one pair for each way
        total, least = (
            max(message_ns(network, *pair, size, backend) for pair in ways.values())
            for size in (collective.payload_bytes, 0)
        )
        return _plan(collective, "permute", ("direct",), spread[-1], (total * 1e-9, least * 1e-9), "preset")
    kind = _kind(collective)
    system = preset_system(network, job.cluster.device)
    # Groups whose members lie alike take the same.
    alike = {tuple(between(network, a, b) for a, b in zip(row, (*row[1:], row[0]), strict=True)): row for row in rows}

    def seconds(size: int) -> float:
        return max(subset_ns(network, system, kind, size, row, backend) for row in alike.values()) * 1e-9

    members = max(len(row) for row in rows)
    smallest = system.splits * (1 if kind == "all_gather" else members)
    slowest = max(spread, key=lambda at: (1 / at.below - 1 / at.within) / at.level.bandwidth)
    times = (seconds(max(smallest, collective.input_bytes)), seconds(smallest))
    return _plan(collective, kind, ("ring",), slowest, times, "preset")


def _kind(collective: Collective) -> AstraKind:
    kind = next((known for known in ASTRA_KINDS if known == collective.kind), None)
    if kind is None:
        raise UnsupportedError(
            f"ASTRA-sim has no {collective.kind}", where="--network", fix="use --network alpha-beta or flow"
        )
    return kind


def _plan(
    collective: Collective, primitive: Primitive, algorithms: tuple[str, ...], slowest: LevelSpread,
    times: tuple[float, float], source: AstraSource,
) -> CollectivePlan:  # fmt: skip
    total, latency = times
    stages: tuple[Stage, ...] = ()
    sent = _sent_bytes(collective, slowest)
    if total > latency and sent:
        stage = Stage(
            level=slowest.level, primitive=primitive, algorithm="direct" if algorithms[-1] == "direct" else "ring",
            parts=slowest.parts, below=slowest.below, steps=1, alpha_s=0.0, step_bytes=sent,
            rate=sent / (total - latency),
        )  # fmt: skip
        stages = (stage,)
    why = "ASTRA-sim's answer" if source == "astra-sim" else "ASTRA-sim's rules"
    return CollectivePlan(
        kind=collective.kind, algorithm=" + ".join(algorithms), start_s=latency, stages=stages, why=why
    )


def _sent_bytes(collective: Collective, at: LevelSpread) -> float:
    """Bytes that one device sends over a level.

    With d parts of b members, p phases and a buffer of S bytes, `p (d - 1) / d * S / b`: the dimensions inside have
    scattered the buffer. An all-to-all takes the whole buffer through every dimension, and a message goes as it is.
    """
    size = float(collective.payload_bytes)
    if collective.kind == "collective_permute":
        return size
    share = (at.parts - 1) / at.parts * size
    return share if collective.kind == "all_to_all" else PHASES[collective.kind] * share / at.below


def _spread_network(spread: tuple[LevelSpread, ...], cluster: Cluster) -> AstraNetwork:
    for at in spread:
        if at.within != at.parts * at.below:
            raise UnsupportedError(
                f"a group has up to {at.within} devices in a domain of {cluster.name}'s level {at.level.name}, in {at.parts} "
                f"parts of {at.below} and more: ASTRA-sim's networks are products of dimensions",
                where="--network", fix="use --network alpha-beta or flow",
            )  # fmt: skip
    inside = dict(zip(cluster.levels, (1, *(level.size for level in cluster.levels)), strict=False))
    return AstraNetwork(
        dimensions=tuple(d for at in spread for d in level_dimensions(at.level, at.parts, inside=inside[at.level]))
    )


def _message_ns(collective: Collective, network: AstraNetwork) -> tuple[int, float]:
    """A send and its receive between neighbours, and its latency: ASTRA-sim charges neither endpoint delays nor chunks."""
    dimension = network.dimensions[-1]
    latency = dimension.hops(1) * dimension.latency_ns
    return math.floor(latency + collective.payload_bytes / dimension.bytes_per_ns), latency
