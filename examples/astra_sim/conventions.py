"""What ASTRA-sim's conventions do to a collective's time: the tables of docs/astra-sim.md, as Markdown.

python examples/astra_sim/conventions.py
"""

from __future__ import annotations

from dataclasses import replace

from meshcast.base.display import markdown_of
from meshcast.network.astra import AstraBackend, AstraDimension, AstraKind, AstraNetwork, AstraSystem, finish_ns

GIB = 1 << 30
# nccl-tests, all-reduce of 8 H100 in one node, out of place; README of aws-samples/awsome-distributed-training,
# micro-benchmarks/nccl-tests/aws-batch. Bytes to microseconds.
MEASURED_US = {131_072: 19.37, 1_048_576: 28.56, 16_777_216: 124.0, 134_217_728: 592.8, 1_073_741_824: 4253.0}


def network(shape: str, npus: int, bandwidth: float = 50.0, latency_ns: float = 500.0) -> AstraNetwork:
    """One dimension."""
    only = AstraDimension(shape=shape, npus=npus, bandwidth=bandwidth, latency_ns=latency_ns)  # type: ignore[arg-type]
    return AstraNetwork(dimensions=(only,))


def system(algorithm: str, chunks: int = 1) -> AstraSystem:
    """One algorithm for everything, set up like ASTRA-sim's examples."""
    names = (algorithm,)
    return AstraSystem(
        all_reduce=names, all_gather=names, reduce_scatter=names, all_to_all=names, splits=chunks,
        optimisation="localBWAware", local_memory_bandwidth=1600.0,
    )  # fmt: skip


def microseconds(
    net: AstraNetwork, chosen: AstraSystem, kind: AstraKind, size: int, backend: AstraBackend = "Unaware"
) -> str:
    """The time in a table's cell."""
    return f"{finish_ns(net, chosen, kind, size, backend) / 1e3:,.1f}"


def conventions() -> str:
    """Pairs of runs that differ in one convention."""
    ring, switch = network("Ring", 32), network("Switch", 32)
    decimal = network("Ring", 32, bandwidth=50 * 1e9 / GIB)
    free = replace(system("ring"), local_memory_bandwidth=1e9)
    tree = microseconds(switch, system("doubleBinaryTree"), "all_reduce", GIB)
    rows = [
        ("a GB of a link is 2^30 bytes, or 10^9", "all-reduce, ring on a Ring",
         microseconds(ring, system("ring"), "all_reduce", GIB), microseconds(decimal, system("ring"), "all_reduce", GIB)),
        ("a reduction passes over local memory three times, or is free", "all-reduce, ring on a Ring",
         microseconds(ring, system("ring"), "all_reduce", GIB), microseconds(ring, free, "all_reduce", GIB)),
        ("without queues 31 messages leave one port at once, or in turn", "all-gather, direct on a Switch",
         microseconds(switch, system("direct"), "all_gather", GIB // 32),
         microseconds(switch, system("direct"), "all_gather", GIB // 32, "Aware")),
        ("a switch cuts through without queues, or stores and forwards with them", "all-reduce, ring on a Switch",
         microseconds(switch, system("ring"), "all_reduce", GIB),
         microseconds(switch, system("ring"), "all_reduce", GIB, "Aware")),
        ("an all-gather's size is the shard, or were it the whole", "all-gather of 1 GiB, ring on a Ring",
         microseconds(ring, system("ring"), "all_gather", GIB),
         microseconds(ring, system("ring"), "all_gather", GIB // 32)),
        ("a ring's all-to-all passes one message at a time, or all go directly", "all-to-all, ring or direct on a Ring, Aware",
         microseconds(ring, system("ring"), "all_to_all", GIB, "Aware"),
         microseconds(ring, system("direct"), "all_to_all", GIB, "Aware")),
        ("a tree sends whole chunks: one chunk, or 64", "all-reduce, doubleBinaryTree on a Switch",
         tree, microseconds(switch, system("doubleBinaryTree", 64), "all_reduce", GIB)),
        ("without queues active chunks each have the whole link: one active, or two", "all-reduce in 4 chunks, ring on a Ring",
         microseconds(ring, system("ring", 4), "all_reduce", GIB),
         microseconds(ring, replace(system("ring", 4), active_chunks=2), "all_reduce", GIB)),
        ("chunks of one dimension take turns: one chunk, or 64", "all-reduce of 1 MiB, ring on a Ring",
         microseconds(ring, system("ring"), "all_reduce", 1 << 20),
         microseconds(ring, system("ring", 64), "all_reduce", 1 << 20)),
    ]  # fmt: skip
    return markdown_of(("convention", "32 NPUs, 50 GB/s, 500 ns, 1 GiB", "first, us", "second, us"), rows, right=(2, 3))


def measured() -> str:
    """ASTRA-sim's own example of a node of 8 H100 beside what was measured on one."""
    net = network("Switch", 8, bandwidth=400.0, latency_ns=936.25)
    chosen = replace(system("ring", 4), active_chunks=2, local_memory_bandwidth=3350.0)
    rows = []
    for size, real in MEASURED_US.items():
        times = [finish_ns(net, chosen, "all_reduce", size, backend) / 1e3 for backend in ("Unaware", "Aware")]
        rows.append((f"{size:,}", f"{real:,.1f}", *(f"{us:,.1f} ({us / real - 1:+.0%})" for us in times)))
    return markdown_of(("bytes", "measured, us", "Unaware, us", "Aware, us"), rows, right=(0, 1, 2, 3))


if __name__ == "__main__":
    print(conventions(), measured(), sep="\n\n")
