"""Would we have picked the right plan? Measured runs that differ in their plan only, and which of them is predicted to be
the fastest.

A group is runs of one model on as many of the same devices with the same sequence, precision, software and its version, and by
default the same global batch. They differ in what a plan decides: degrees, microbatch, sharding, recomputation and whether
tensor-parallel exchanges run beside products (`async_tp`). The *pick* is the run that is predicted to be the fastest. Its regret
is the time that it takes longer than the fastest one, by the measurement; where batches may differ, times are those of a
sequence:

    regret = measured(pick) / min(measured) - 1

A pick within `CLOSE` of the best counts as good; measurements of one step differ by as much from day to day.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from meshcast.evidence.rank_correlation import spearman
from meshcast.evidence.validate.runs.comparison import RunResult
from meshcast.evidence.validate.runs.rows import RunRow

CLOSE = 0.03
SCHEMA = "meshcast.validation/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChoice:
    """One group of runs.

    Attributes:
        name: What they have in common, in words.
        results: Those that were measured and predicted.
        failed: Ids of those that were not predicted.
    """

    name: str
    results: tuple[RunResult, ...]
    failed: tuple[str, ...] = ()

    @property
    def pick(self) -> RunResult:
        """The run that is predicted to be the fastest."""
        return min(self.results, key=predicted_s)

    @property
    def best(self) -> RunResult:
        """The fastest one."""
        return min(self.results, key=measured_s)

    @property
    def regret(self) -> float:
        """How much longer the pick takes than the fastest one, as a share."""
        return measured_s(self.pick) / measured_s(self.best) - 1

    @property
    def good(self) -> bool:
        """Whether the pick is the best, or close to it."""
        return self.regret <= CLOSE

    @property
    def spearman(self) -> float | None:
        """Rank correlation of predicted and measured steps."""
        return spearman([measured_s(each) for each in self.results], [predicted_s(each) for each in self.results])

    def to_json(self) -> dict[str, Any]:
        """The line of a group."""
        return {
            "id": self.name,
            "runs": [each.row.id for each in self.results],
            "failed": list(self.failed),
            "picked": self.pick.row.id,
            "best": self.best.row.id,
            "regret": self.regret,
            "good": self.good,
            "spearman": self.spearman,
        }


def measured_s(result: RunResult) -> float:
    """Measured seconds of a sequence."""
    assert result.row.measured is not None
    return result.row.measured / result.measured.run.counts.get("gbs", 1)


def predicted_s(result: RunResult) -> float:
    """Predicted seconds of a sequence."""
    assert result.row.predicted is not None
    return result.row.predicted / result.measured.run.counts.get("gbs", 1)


def plan_groups(rows: Iterable[RunRow], *, any_batch: bool = False) -> dict[str, list[RunRow]]:
    """Runs that differ in their plan only, in groups of two or more different plans, by what they have in common.

    Args:
        rows: The runs.
        any_batch: Whether their batches may differ, too.
    """
    found: dict[str, list[RunRow]] = {}
    for row in rows:
        if not row.unread and row.scored:
            found.setdefault(_common(row, ("gbs",) if any_batch else ()), []).append(row)
    return {name: members for name, members in found.items() if len({_plan(row) for row in members}) > 1}


def plan_choices(groups: dict[str, list[RunRow]], results: Sequence[RunResult]) -> list[PlanChoice]:
    """What would have been picked in each group; those of which fewer than two runs were predicted are left out."""
    by_id = {each.row.id: each for each in results}
    choices = []
    for name, members in groups.items():
        known = [by_id[row.id] for row in members if row.id in by_id]
        timed = tuple(each for each in known if each.row.predicted is not None and each.row.measured is not None)
        failed = tuple(each.row.id for each in known if each not in timed)
        if len(timed) > 1:
            choices.append(PlanChoice(name=name, results=timed, failed=failed))
    return choices


def choices_json(choices: Sequence[PlanChoice], groups: int, *, any_batch: bool = False) -> dict[str, Any]:
    """The last line of a validation: how many groups, in how many the pick was good, the regret and the rank correlation."""
    regrets = [each.regret for each in choices]
    ranks = [rank for each in choices if (rank := each.spearman) is not None]
    return {
        "schema": SCHEMA,
        "kind": "plans",
        "compared": "time of a sequence" if any_batch else "time of a step, equal batches",
        "rows": groups,
        "failed": groups - len(choices),
        "good": sum(each.good for each in choices),
        "good_share": sum(each.good for each in choices) / len(choices) if choices else None,
        "best_picked": sum(regret == 0 for regret in regrets),
        "mean_regret": sum(regrets) / len(regrets) if regrets else None,
        "largest_regret": max(regrets, default=None),
        "mean_spearman": sum(ranks) / len(ranks) if ranks else None,
    }


def _plan(row: RunRow) -> tuple[Any, ...]:
    run = row.run
    return (*sorted(run.degrees.items()), run.mbs, run.zero, run.recompute, run.flags.get("async_tp"))


def _common(row: RunRow, free: Sequence[str]) -> str:
    run = row.run
    sizes = ", ".join(f"{name} {value}" for name, value in sorted(run.counts.items()) if name not in free)
    software = " ".join(
        filter(None, (run.framework, run.framework_version, "compiled" * run.flags.get("compiled", False)))
    )
    device = f"{run.device} {run.device_note}".strip()
    told = (run.precision, run.attention, software, run.scale_out)
    return f"{run.model} on {run.devices} x {device}, {sizes}, {', '.join(filter(None, told))} ({row.source})"
