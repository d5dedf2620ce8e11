"""`make bench`, the network's part: a 1 GiB all-reduce of 1,024 devices as flows, from an empty fabric to the answer.

Held against ASTRA-sim's congestion-aware run of the same on a ring, in this run where its program is on the PATH, else
against the 20 s of CPU that it took elsewhere (20 to 30 s there). Figures are medians of calls in a warm process.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from meshcast.hardware import Cluster, load_cluster
from meshcast.network.fabric import fabric_of
from meshcast.network.flow import FlowJob, FlowTraffic, simulate_flows
from meshcast.network.plan import CollectivePlan, Stage

PROGRAM = "AstraSim_Analytical_Congestion_Aware"
ELSEWHERE_S = 20.0
LEAST_RATIO = 20.0
DEVICES = 1024
SIZE = 2.0**30


def ring_plan(cluster: Cluster) -> CollectivePlan:
    """Rings inside each level's domains, the outer ones with each member's share of the buffer."""
    stages, below = [], 1
    for level in cluster.for_devices(DEVICES).levels:
        parts = min(level.size, DEVICES) // below
        steps = 2 * (parts - 1)
        stages.append(
            Stage(
                level=level,
                primitive="all_reduce",
                algorithm="ring",
                parts=parts,
                below=below,
                steps=steps,
                alpha_s=level.latency_s,
                step_bytes=SIZE / below / parts,
                rate=level.bandwidth,
            )
        )
        below *= parts
    return CollectivePlan(kind="all_reduce", algorithm="ring", stages=tuple(stages))


def fabrics() -> dict[str, Cluster]:
    """Clusters whose 1,024 devices reduce: nodes under one switch, nodes on rails, a ring, a switch, a torus."""
    nodes = load_cluster("dgx-h100")
    outer = nodes.levels[1]
    ring = replace(outer, name="ring", topology="ring", links=2, size=DEVICES)
    torus = replace(outer, name="torus", topology="torus", links=6, size=DEVICES, dims=(8, 8, 16))
    return {
        "128 DGX H100": nodes,
        "128 DGX H100 on a rail-optimised fat tree": load_cluster("h100-rail-optimised"),
        "a ring": replace(nodes, levels=(ring,)),
        "a switch": replace(nodes, levels=(replace(outer, size=DEVICES),)),
        "a torus of 8x8x16": replace(nodes, levels=(torus,)),
    }


def median_seconds(run: Callable[[], object], repeats: int) -> float:
    """Median wall time of a call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def astra_seconds() -> tuple[float, str]:
    """(seconds of ASTRA-sim, where they were measured)."""
    if shutil.which(PROGRAM) is None:
        return ELSEWHERE_S, "elsewhere"
    from meshcast.network.astra import AstraDimension, AstraNetwork, AstraSystem, run_collective

    network = AstraNetwork(dimensions=(AstraDimension(shape="Ring", npus=DEVICES, bandwidth=50.0, latency_ns=500.0),))
    system = AstraSystem(all_reduce=("ring",), splits=4, optimisation="localBWAware", local_memory_bandwidth=1600.0)
    print(f"{DEVICES} devices on a ring: running ASTRA-sim, half a minute ...", file=sys.stderr, flush=True)
    start = time.perf_counter()
    run_collective(network, system, "all_reduce", int(SIZE), "Aware")
    return time.perf_counter() - start, "here"


def main() -> None:
    """Prints a line a fabric; fails where a flow alone is not the closed form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    theirs, where = astra_seconds()
    for name, cluster in fabrics().items():
        plan = ring_plan(cluster)
        traffic = FlowTraffic(plan=plan, groups=np.arange(DEVICES)[None, :])

        def answer(cluster: Cluster = cluster, traffic: FlowTraffic = traffic) -> float:
            return simulate_flows(fabric_of(cluster, DEVICES), [FlowJob(name="all-reduce", traffic=traffic)]).seconds

        seconds = median_seconds(answer, options.repeats)
        predicted = answer()
        if abs(predicted / plan.seconds - 1) > 1e-9:
            sys.exit(f"{name}: flows take {predicted} s, the closed form {plan.seconds} s")
        ratio = theirs / seconds
        if options.json:
            figure = {"what": f"1 GiB all-reduce of {DEVICES} devices as flows", "on": name, "seconds": seconds}
            print(json.dumps({**figure, "predicted_s": predicted, "astra_s": theirs, "astra": where, "ratio": ratio}))
            continue
        verdict = "" if ratio >= LEAST_RATIO else "  MISSED"
        print(
            f"1 GiB all-reduce of {DEVICES} devices as flows, {name}: {predicted * 1e3:.2f} ms predicted in "
            f"{seconds * 1e3:.1f} ms; ASTRA-sim {theirs:.1f} s ({where}) = {ratio:,.0f} x; budget {LEAST_RATIO:.0f} x"
            f"{verdict}",
            flush=True,
        )


if __name__ == "__main__":
    main()
