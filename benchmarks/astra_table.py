"""Exported traces in ASTRA-sim itself, plan by plan: the table of `docs/traces.md`. Its programs have to be on the PATH.

    python benchmarks/astra_table.py [--only pp=2]

A prediction with ASTRA-sim's own network rules, one communication at a time and nothing that slows anything else, beside what
ASTRA-sim says of the traces that were written of it: the step, one step alone, ASTRA-sim's answer to the recorded durations, how
far the two are apart, and ASTRA-sim's answer by its own roofline. A row with every turn of its loops that is further off than
`FARTHEST` ends this with exit code 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from meshcast.hardware import resolve  # noqa: E402
from meshcast.hardware.astra import cluster_network  # noqa: E402
from meshcast.network.astra import astra_available, preset_system, run_traces  # noqa: E402
from meshcast.options.options import Options  # noqa: E402
from meshcast.traces.formats import TraceRequest, write_trace  # noqa: E402

FARTHEST = 1e-3  # of a step: whole microseconds are all that ASTRA-sim reads of a duration
BANDWIDTH, LATENCY_NS = 50.0, 500.0
PEAK = 900  # 10**12 FLOP/s of ASTRA-sim's roofline
LLAMA = {"layers": "4", "batch": "8", "seq": "256"}
PLANS = (
    "dp=4", "fsdp=4", "tp=4", "tp=4,sp=1", "dp=4,zero=1", "dp=4,zero=2", "dp=4,zero=3", "cp=4", "tp=2,fsdp=2", "tp=2,dp=2",
    "tp=2,cp=2", "pp=4", "pp=4,schedule=gpipe", "pp=2,vp=2", "pp=4,schedule=zb-h1", "pp=4,schedule=zb-h2", "pp=2,tp=2",
    "pp=2,tp=4", "pp=2,dp=2", "pp=2,dp=2,zero=1", "pp=2,fsdp=2", "pp=2,vp=2,dp=2", "pp=2,tp=2,dp=2", "pp=2,tp=2,dp=2,zero=1",
    "pp=2,tp=2,dp=2,schedule=zb-h1", "pp=2,cp=2", "dp=2,fsdp=2,tp=2",
)  # fmt: skip
EXPERTS = ("ep=4", "ep=2,dp=2", "ep=2,tp=2", "pp=2,ep=2")
ELSEWHERE = ("fsdp=4", "tp=2,dp=2", "cp=4", "pp=2,tp=2,dp=2")  # on other networks as well
COMPACT = ("fsdp=4", "tp=4")  # with one node for all turns of a loop as well
AXES = frozenset({"dp", "fsdp", "tp", "pp", "cp", "ep"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A job on a network of so many devices."""

    plan: str
    label: str = ""
    model: str = "llama3.2-1b"
    settings: Mapping[str, str] = field(default_factory=lambda: LLAMA)
    shape: str = "Ring"
    unroll: bool = True

    @property
    def ranks(self) -> int:
        """How many devices the plan takes."""
        sizes = dict(part.split("=") for part in self.plan.split(","))
        count = 1
        for axis, size in sizes.items():
            count *= int(size) if axis in AXES else 1
        return count

    @property
    def name(self) -> str:
        """For the table."""
        return self.label + self.plan.replace(",", ", ")


ROWS = (
    *(Row(plan=plan) for plan in PLANS),
    *(Row(plan=plan, label="mixtral-tiny: ", model="mixtral-tiny", settings={"batch": "8"}) for plan in EXPERTS),
    *(Row(plan=plan, label="a Switch: ", shape="Switch") for plan in ELSEWHERE),
    *(Row(plan=plan, label="all connected: ", shape="FullyConnected") for plan in ELSEWHERE),
    *(Row(plan=plan, label="`--no-unroll`: ", unroll=False) for plan in COMPACT),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Microseconds of a row."""

    step: float
    alone: float
    astra: float
    roofline: float

    @property
    def difference(self) -> float:
        """ASTRA-sim's over ours, of one step alone, less one."""
        return self.astra / self.alone - 1


def answered(row: Row, folder: Path) -> Answer:
    """A row's traces, written and run by ASTRA-sim twice."""
    path = folder / "network.yml"
    path.write_text(
        f"topology: [ {row.shape} ]\nnpus_count: [ {row.ranks} ]\nbandwidth: [ {BANDWIDTH} ]\nlatency: [ {LATENCY_NS} ]\n"
    )
    on = f"h100-sxm@{path}"
    options = Options(
        on=on, plan=row.plan, settings=row.settings, network="astra", channels=1, contention="off", host="off"
    )
    request = TraceRequest(target=row.model, options=options, out=folder / "job", unroll=row.unroll)
    written = write_trace("chakra", request).summary
    cluster = resolve(on)
    network = cluster_network(cluster, row.ranks)
    system = preset_system(network, cluster.device)
    rooflined = replace(system, others={"roofline-enabled": 1, "peak-perf": PEAK})
    groups = Path(written["comm_groups"])
    return Answer(
        step=written["step_time_s"] * 1e6,
        alone=written["makespan_s"] * 1e6,
        astra=run_traces(request.out, network, system, groups=groups).finish_ns / 1e3,
        roofline=run_traces(request.out, network, rooflined, groups=groups).finish_ns / 1e3,
    )


def main() -> None:
    """Prints the table.

    Raises:
        SystemExit: ASTRA-sim is not there, or a row is too far off.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows with this in their name")
    asked = parser.parse_args()
    if "Unaware" not in astra_available():
        raise SystemExit("AstraSim_Analytical_Congestion_Unaware is not on the PATH")
    print(
        "| plan | step, us | alone, us | ASTRA-sim, us | difference | its roofline, us |\n|---|---:|---:|---:|---:|---:|"
    )
    far = []
    for row in ROWS:
        if asked.only not in row.name:
            continue
        with tempfile.TemporaryDirectory(prefix="meshcast-astra-table-") as folder:
            found = answered(row, Path(folder))
        difference = f"{found.difference:+.3%}".replace("%", " %")
        print(
            f"| {row.name} | {found.step:,.1f} | {found.alone:,.1f} | {found.astra:,.1f} | {difference} "
            f"| {found.roofline:,.1f} |",
            flush=True,
        )
        if row.unroll and abs(found.difference) > FARTHEST:
            far.append(f"{row.name}: {difference}")
    if far:
        raise SystemExit(f"more than {FARTHEST:.1%} off: " + "; ".join(far))


if __name__ == "__main__":
    main()
