"""`meshcast show TARGET --kernels --explain N`: one kernel's time with the formula and the numbers behind it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from meshcast.base import UsageError, format_bytes, format_rate, format_time, format_whole, with_article
from meshcast.estimate import Explanation, Term
from meshcast.jobs.program.tables import describe, kernel_groups
from meshcast.results import Section, columns, print_sections

if TYPE_CHECKING:
    from meshcast.jobs.program.run import Run
    from meshcast.lower import Kernel

SCHEMA = "meshcast.explanation/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedKernel:
    """A row of the kernels' table and why one launch of it takes as long as it does."""

    number: int
    name: str
    count: int
    location: str
    explanation: Explanation


def explain_kernel(run: Run, number: int) -> ExplainedKernel:
    """The explanation of the kernel in row `number` of the table, from 1.

    Raises:
        UsageError: the table has no such row.
    """
    groups = kernel_groups(run)
    if not 1 <= number <= len(groups):
        raise UsageError(
            f"no kernel {number}: the table has {len(groups)} rows", where="--explain", fix=f"1 to {len(groups)}"
        )
    kernel, count = groups[number - 1]
    explanation = _collective(run, kernel) if kernel.collective is not None else _computed(run, kernel)
    return ExplainedKernel(
        number=number,
        name=describe(run, kernel),
        count=count,
        location=kernel.location,
        explanation=explanation,
    )


def _computed(run: Run, kernel: Kernel) -> Explanation:
    """The estimator's own words, and the clock of the whole step where that slows the kernel."""
    answer = run.kernels[kernel]
    estimator = next(e for e in run.estimators if e.name == answer.estimator)
    if hasattr(estimator, "explain"):
        found: Explanation = estimator.explain(kernel, run.device)
        if answer.time == found.time:
            return found
        slowed = (
            Term("clock of the step under the power cap, as a share", "f/F", run.clock_share),
            Term("share of the time that follows the clock", "c", answer.clocked),
        )
        formula = f"{found.formula}; at the step's clock t (c F/f + 1 - c)"
        return replace(
            found,
            formula=formula,
            terms=(*found.terms, *slowed),
            time=answer.time,
            limited_by=answer.limited_by,
        )
    terms = (
        Term("what the engines need", "compute", answer.compute_time, "s"),
        Term("what the memory needs", "mem", answer.memory_time, "s"),
        Term("what the cores need, arithmetic and carrying data", "cores", answer.core_time, "s"),
        Term("what none of them explains", "overhead", answer.overhead, "s"),
    )
    return Explanation(
        estimator=answer.estimator,
        model=f"{estimator.fidelity}, which does not say how",
        formula="t = max(cores, mem) + overhead",
        terms=terms,
        time=answer.time,
        limited_by=answer.limited_by,
    )


def _collective(run: Run, kernel: Kernel) -> Explanation:
    time, collective = run.collective(kernel), kernel.collective
    assert collective is not None
    return Explanation(
        estimator=run.options.network.model,
        model=f"{time.algorithm} over {time.level}",
        formula="t = latency + transfer",
        terms=(
            Term("devices of the group", "n", collective.group.size),
            Term("payload", "B", collective.payload_bytes, "B"),
            Term("bytes that each device sends", "S", collective.sent_bytes, "B"),
            Term("steps' latency", "latency", time.latency_s, "s"),
            Term("bytes over the links", "transfer", time.bandwidth_s, "s"),
        ),
        time=time.seconds,
        limited_by="link" if time.bandwidth_s >= time.latency_s else "latency",
    )


def explanation_json(run: Run, explained: ExplainedKernel) -> dict[str, Any]:
    """Schema `meshcast.explanation/1`; terms in SI units."""
    found = asdict(explained.explanation)
    return {
        "schema": SCHEMA,
        "name": run.workload.name,
        "on": run.device.name,
        "kernel": {
            "number": explained.number,
            "name": explained.name,
            "count": explained.count,
            "location": explained.location,
        },
        "estimator": found["estimator"],
        "model": found["model"],
        "formula": found["formula"],
        "terms": list(found["terms"]),
        "seconds": found["time"],
        "limited_by": found["limited_by"],
    }


def print_explanation(run: Run, explained: ExplainedKernel) -> None:
    """Prints the formula, its terms and the result."""
    found = explained.explanation
    rows = [(term.name, term.symbol, _value(term)) for term in found.terms]
    rows.append(("one launch", f"limited by {found.limited_by}", format_time(found.time)))
    section = Section(
        title=f"Kernel {explained.number}: {explained.name} on {with_article(run.device.name)}",
        columns=columns("term", "symbol", ">value"),
        rows=rows,
        note=f"{found.formula} ({found.estimator}: {found.model}); launched {format_whole(explained.count)} x in a step",
    )
    print_sections([section])


def _value(term: Term) -> str:
    if term.unit == "s":
        return format_time(term.value)
    if term.unit == "B":
        return format_bytes(term.value)
    if term.unit.endswith("/s"):
        return format_rate(term.value, term.unit)
    return f"{term.value:,.4g} {term.unit}".strip()
