"""Why a search has nothing to show: what points fail of, how far they are from fitting, and from what is asked for."""

from __future__ import annotations

from collections import Counter

from meshcast.base import format_bytes, format_time
from meshcast.explore.exploration import Exploration
from meshcast.explore.search import Found

MOST = 3  # errors that are told


def reasons(exploration: Exploration) -> list[tuple[str, str]]:
    """Rows of what keeps the points from running, of those that are held."""
    rows: list[tuple[str, str]] = []
    if not exploration.tally.space:
        rows.append(("the space has no points", "no plan shares a model out over its devices with its batch"))
    outside = [each for each in exploration.found if each.outcome.answered and not each.allowed]
    if outside:
        rows.append((f"{len(outside):,} run, but not within the limits", _nearest(outside)))
    full = [each for each in exploration.found if each.outcome.status == "infeasible" and each.outcome.memory_bytes]
    if full:
        least = min(full, key=lambda each: each.outcome.memory_share or 0.0).outcome
        held, room = format_bytes(least.memory_bytes or 0), format_bytes(least.capacity_bytes or 0)
        rows.append((f"{len(full):,} do not fit", f"the smallest needs {held} of {room}"))
    if exploration.left_out:
        bounds = [bound for _, bound in exploration.left_out]
        smallest, fastest = min(each.memory_bytes for each in bounds), min(each.time_s for each in bounds)
        told = f"they need at least {format_bytes(int(smallest))} and {format_time(fastest)} a step"
        rows.append((f"{len(bounds):,} are left out by their bounds", told))
    other = Counter(
        each.outcome.error or "no reason is known"
        for each in exploration.found
        if each.outcome.status != "answered" and not (each.outcome.status == "infeasible" and each.outcome.memory_bytes)
    )
    rows += [(f"{count:,} have no answer", text) for text, count in other.most_common(MOST)]
    return rows


def _nearest(found: list[Found]) -> str:
    """What points that run come to at best."""
    outcomes = [each.outcome for each in found]
    said = [f"the fastest step takes {format_time(min(each.step_time_s or 0.0 for each in outcomes))}"]
    shares = [each.memory_share for each in outcomes if each.memory_share is not None]
    watts = [each.watts for each in outcomes if each.watts is not None]
    devices = [each.devices for each in outcomes if each.devices is not None]
    said += [f"the smallest has {min(shares):.0%} of the memory"] if shares else []
    said += [f"the least power is {min(watts):,.0f} W"] if watts else []
    said += [f"the fewest devices are {min(devices):,}"] if devices else []
    return ", ".join(said)
