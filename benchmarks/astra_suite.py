"""ASTRA-sim on a set of generated traces: its answer for every one of them, by its own roofline, beside ours.

    meshcast generate --suite SUITE --seed 7
    python benchmarks/astra_suite.py SUITE --on dgx-h100

Where AstraSim_Analytical_Congestion_Unaware is not on the PATH, every trace is still read and run by ASTRA-sim's rules here
(`--network astra --channels 1`).
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import replace
from pathlib import Path

from meshcast import predict
from meshcast.base import UnsupportedError
from meshcast.hardware import Cluster, cluster_network, resolve
from meshcast.network.astra import astra_available, preset_system, run_alone, run_traces

TERA = 1e12


def main() -> None:
    """Prints a row for every trace.

    Raises:
        SystemExit: A trace is not answered.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", type=Path)
    parser.add_argument("--on", default="dgx-h100")
    asked = parser.parse_args()
    rows = json.loads((asked.suite / "suite.json").read_text())["graphs"]
    there = "Unaware" in astra_available()
    if not there:
        print("AstraSim_Analytical_Congestion_Unaware is not on the PATH: its rules alone")
    print("| trace | nodes | ranks | ours, us | ASTRA-sim, us |\n|---|---:|---:|---:|---:|")
    silent: dict[str, str] = {}
    ratios: list[float] = []
    for row in rows:
        prefix = asked.suite / row["trace"]
        ours = predict(
            prefix, on=asked.on, durations="estimated", network="astra", channels=1, contention="off", levers=False
        ).step_time_s
        theirs = None
        why = "" if ours else "no step of ours"
        try:
            theirs = _simulated(prefix, resolve(asked.on), row["ranks"]) if there else None
        except UnsupportedError as refused:
            why = str(refused)
        if theirs and ours:
            ratios.append(ours * 1e9 / theirs)
        elif why or there:
            silent[row["trace"]] = why or "it took no time"
        said = "" if theirs is None else f"{theirs / 1e3:,.1f}"
        print(
            f"| {row['trace']} | {row['nodes']:,} | {row['ranks']} | {(ours or 0.0) * 1e6:,.1f} | {said} |", flush=True
        )
    if ratios:
        print(f"ours / ASTRA-sim's: {min(ratios):.2f} to {max(ratios):.2f}, median {statistics.median(ratios):.2f}")
    if silent:
        reasons = "\n".join(f"{trace}: {why}" for trace, why in silent.items())
        raise SystemExit(f"{len(silent)} of {len(rows)} traces are not answered:\n{reasons}")
    print(f"all {len(rows)} traces are answered")


def _simulated(prefix: Path, cluster: Cluster, ranks: int) -> int:
    """ASTRA-sim's nanoseconds, computing by its roofline."""
    network = cluster_network(cluster, max(ranks, 2))
    peak = cluster.device.matrix_flops["bf16"] / TERA
    system = replace(
        preset_system(network, cluster.device), others={"roofline-enabled": 1, "peak-perf": peak}
    )  # fmt: skip
    if ranks == 1:
        return run_alone(prefix, network, system).finish_ns
    groups = prefix.with_name(f"{prefix.name}.comm_groups.json")
    return run_traces(prefix, network, system, groups=groups if groups.exists() else None).finish_ns


if __name__ == "__main__":
    main()
