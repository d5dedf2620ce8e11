"""What a search has found, for people: the best points, why the first plan wins, the front, and what was looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshcast.base import format_bytes, format_time
from meshcast.explore.exploration import Exploration
from meshcast.explore.search import Found
from meshcast.explore.why import beside, others
from meshcast.explore.why_none import reasons
from meshcast.results import Section, columns, format_count, percent, print_sections

WHY_ROWS = 8
SENSITIVITIES = 8


def print_exploration(exploration: Exploration, *, title: str) -> None:
    """Prints what was found on standard output."""
    print_sections(exploration_sections(exploration, title=title))


def exploration_sections(exploration: Exploration, *, title: str) -> list[Section]:
    """The tables of a search."""
    best = exploration.best
    if not best:
        verdict = "nothing found yet" if exploration.interrupted else "no point can run"
        return [Section(title=title, rows=[(verdict, _counted(exploration)), *reasons(exploration)])]
    sections = [_table(exploration, best, title=title, note=_counted(exploration))]
    if best[0].point.plan is not None:
        sections += _why(exploration, best)
    if exploration.again:
        sections.append(_second_look(exploration))
    if exploration.sensitivity:
        rows = [
            (
                f"{each.key} {each.change}",
                "does not run" if each.step_time_s is None else format_time(each.step_time_s),
                percent(each.saved_share),
            )
            for each in exploration.sensitivity[:SENSITIVITIES]
            if each.saved_share > 0
        ]
        titles = columns("~hardware of the first", ">step", ">saved")
        sections.append(Section(title="what a tenth better would save", columns=titles, rows=rows))
    if len(exploration.objectives) > 1:
        words = " and ".join(each.name for each in exploration.objectives)
        sections.append(_table(exploration, exploration.pareto, title=f"Pareto front of {words}"))
    return sections


def _second_look(exploration: Exploration) -> Section:
    """The best points with other options, and where the order changes."""
    said = ", ".join(f"{name}={value}" for name, value in exploration.then.items())
    rows = [
        (
            _named(before),
            format_time(before.outcome.step_time_s or 0.0),
            format_time(after.outcome.step_time_s)
            if after.outcome.step_time_s is not None
            else str(after.outcome.error),
        )
        for before, after in zip(exploration.best, exploration.again, strict=True)
    ]
    swaps = len(exploration.swaps)
    note = f"{swaps} pairs change places" if swaps else "the order stays"
    return Section(
        title=f"looked at again: {said}", columns=columns("~point", ">before", ">after"), rows=rows, note=note
    )


def _named(found: Found) -> str:
    """A point by its plan and by what of it is swept."""
    swept = [f"{name.removeprefix('hardware.')}={value}" for name, value in found.values.items() if name != "plan"]
    return ", ".join([*([found.point.plan] if found.point.plan else []), *swept])


def _table(exploration: Exploration, points: list[Found], *, title: str, note: str = "") -> Section:
    swept = {name for each in points for name in each.values if name != "plan"}
    units = {each.outcome.unit for each in points if each.outcome.unit}
    unit = units.pop() if len(units) == 1 else "units"
    rows = []
    for each in points:
        outcome, row = each.outcome, exploration.row(each)
        found = {
            **{f"~{name.removeprefix('hardware.')}": str(each.values.get(name, "")) for name in sorted(swept)},
            "plan": each.point.plan or "",
            ">step": format_time(outcome.step_time_s or 0.0),
            ">MFU": percent(outcome.mfu) if outcome.mfu is not None else "",
            f">{unit}/s": format_count(outcome.units_per_s) if outcome.units_per_s else "",
            ">memory": format_bytes(outcome.memory_bytes or 0),
            "~limited by": outcome.binds or "",
            **_money(exploration, row, unit),
        }
        rows.append({name: found[name] for name in _in_order(exploration, list(found), len(swept) + 1)})
    titles = list(rows[0]) if rows else []
    return Section(title=title, columns=columns(*titles), rows=[tuple(row.values()) for row in rows], note=note)


def _money(exploration: Exploration, row: Mapping[str, Any], unit: str) -> dict[str, str]:
    """What a whole run takes, where its tokens are given; else what a million costs, where there are prices."""
    if exploration.accounts.tokens is not None:
        return {
            ">days": format_count(row["days"]),
            ">cost": f"${format_count(row['cost_usd'])}" if row.get("cost_usd") is not None else "",
            ">energy": f"{format_count(row['energy_kwh'] * 1e-3)} MWh" if row.get("energy_kwh") is not None else "",
            ">CO2": f"{format_count(row['carbon_kg'] * 1e-3)} t" if row.get("carbon_kg") is not None else "",
        }
    if exploration.accounts.prices:
        return {f">$/M {unit}": f"{row['usd_per_million']:.4g}" if "usd_per_million" in row else ""}
    return {}


def _in_order(exploration: Exploration, titles: list[str], naming: int) -> list[str]:
    """Titles in the order in which a narrow terminal has room for them.

    Money, where it is searched for, comes first if it decides, and else behind the step's time.
    """
    wanted = [title for title in titles if title == ">cost" or title.startswith(">$/M")]
    objectives = [each.name for each in exploration.objectives]
    if "cost" not in objectives:
        return titles
    ahead = naming if objectives[0] == "cost" else naming + 1
    return [*titles[:ahead], *wanted, *(title for title in titles[ahead:] if title not in wanted)]


def _why(exploration: Exploration, best: list[Found]) -> list[Section]:
    first = best[0]
    rows = []
    if len(best) > 1:
        rows.append(("against the second", beside(first, best[1])))
    comparable = [each for each in exploration.found if each.values == first.values]
    left_out = exploration.left_out if not first.values else ()
    mine = first.outcome.step_time_s or 0.0
    for other in others(first, comparable, left_out, first.known.capacity_bytes)[:WHY_ROWS]:
        told = f"{other.key}={other.value}, not {other.now}"
        if not other.fits:
            rows.append((told, "does not fit"))
        elif other.step_time_s is not None:
            least = "" if other.exact else "at least "
            rows.append(
                (told, f"{least}{format_time(other.step_time_s)} ({other.step_time_s / mine - 1:+.1%}): {other.plan}")
            )
    return [Section(title="why the first plan wins", rows=rows)] if rows else []


def _counted(exploration: Exploration) -> str:
    tally = exploration.tally
    # A bound tells of most that they cannot run; what only a prediction told of is counted in both.
    both = tally.evaluated + tally.infeasible + tally.bounded - tally.space
    said = [
        f"{tally.space:,} point{'' if tally.space == 1 else 's'}: {tally.evaluated:,} predicted",
        f"{tally.infeasible:,} cannot run" + (f" ({both:,} of them by a prediction)" if both > 0 else ""),
        f"{tally.bounded:,} left out by bounds",
    ]
    if exploration.failed:
        said.append(f"{exploration.failed:,} failed")
    if exploration.interrupted:
        said.append("interrupted")
    return ", ".join(said)
