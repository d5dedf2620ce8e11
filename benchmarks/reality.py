"""Every profiled program beside its own traces, and beside all others': what `meshcast compare --measured` says of both.

    python benchmarks/reality.py [data/measured/h200-profiles] [--own] [--clocks burst]

The first table has each program against its own traces: steps, kernels alone, and how much is aligned. The second has, for
programs against traces of other ones, how much looks aligned all the same: what `comparison/reality` asks for before it believes
that a trace is of a program lies between the two. `--own` leaves the second out.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from meshcast.evidence.comparison.reality.asking import predicted_side, put_beside  # noqa: E402
from meshcast.evidence.comparison.reality.reality import Reality  # noqa: E402
from meshcast.evidence.profiler import MeasuredTrace, read_traces  # noqa: E402
from meshcast.jobs.planned.stacked import with_stack  # noqa: E402
from meshcast.options.options import Options  # noqa: E402


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """A program, one way to predict it, and its traces."""

    program: str
    how: str
    side: Any = field(repr=False)
    traces: tuple[MeasuredTrace, ...] = field(repr=False)
    unprofiled_ms: float | None


def profiled(folder: Path, clocks: str) -> Iterator[Profiled]:
    """Every program of a folder, by its compiled program and by the one that was captured."""
    for name, entry in tomllib.loads((folder / "profiles.toml").read_text()).items():
        traces = tuple(trace for file in entry["traces"] for trace in read_traces(folder / file))
        options = Options(on="h200", clocks=clocks)  # type: ignore[arg-type]
        ways = [("compiled", folder / entry["compiled"], options)] if "compiled" in entry else []
        if "target" in entry:
            told = with_stack(options, entry.get("stack"))
            ways.append((entry.get("stack", "modelled"), folder / entry["target"], told))
        for how, place, told in ways:
            yield Profiled(
                program=name,
                how=how,
                side=predicted_side(place, told),
                traces=traces,
                unprofiled_ms=entry.get("unprofiled_ms"),
            )


def own_row(case: Profiled, trace: MeasuredTrace, found: Reality) -> str:
    """A line of the first table."""
    evidence, coverage = found.evidence, found.coverage
    usual = f"{case.unprofiled_ms:.2f}" if case.unprofiled_ms is not None else "-"
    return (
        f"{case.program:19s} {case.how:15s} {trace.format:10s} {len(found.shown.search.steps):5d} {found.measured_s * 1e3:8.2f} "
        f"{usual:>8s} {found.predicted_s * 1e3:9.2f} {found.predicted_busy_s / found.measured_busy_s:7.2f} "
        f"{coverage.measured:8.0%} {coverage.predicted:9.0%} {evidence.agreement:8.2f} "
        f"{'-' if evidence.names is None else format(evidence.names, '.2f'):>5s} {evidence.verdict}"
    )


def counted(found: list[Reality]) -> str:
    """How many of each verdict."""
    verdicts = Counter(each.evidence.verdict for each in found)
    return ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in ("same", "doubtful", "other"))


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "data/measured/h200-profiles")
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--clocks", default="burst")
    options = parser.parse_args()
    cases = list(profiled(options.folder, options.clocks))
    print(
        f"{'program':19s} {'predicted':15s} {'trace':10s} {'steps':>5s} {'ms':>8s} {'usually':>8s} {'predicted':>9s} "
        f"{'kernels':>7s} {'measured':>8s} {'predicted':>9s} {'products':>8s} {'names':>5s}"
    )
    own = []
    for case in cases:
        for trace in case.traces:
            own.append(put_beside(case.side, [trace]))
            print(own_row(case, trace, own[-1]), flush=True)
    print(f"{len(own)} pairs of a program and its trace: {counted(own)}")
    if options.own:
        return
    wrong = []
    for case in cases:
        for other in {id(other.traces[0]): other for other in cases}.values():
            if family(case.program) != family(other.program):
                wrong += [(case, other, put_beside(case.side, [trace])) for trace in other.traces]
    print(f"{len(wrong)} pairs of a program and another's trace: {counted([found for _, _, found in wrong])}")
    for case, other, found in sorted(wrong, key=lambda pair: -pair[2].evidence.agreement):
        if found.evidence.verdict == "same":
            print(f"    taken for the same: {case.program} ({case.how}) and {other.program}, {found.evidence.why}")


def family(program: str) -> str:
    """What two programs share that are one network, in other software or with other batches."""
    return program.removesuffix("-compiled").removeprefix("torch-")


if __name__ == "__main__":
    main()
