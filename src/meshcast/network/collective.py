"""How a collective is carried out, chosen as the library that runs it would choose, and its time in closed form.

Every algorithm that applies is planned with every protocol that its links have, and the fastest plan is taken, as NCCL
does with its own tuning model; the families that a library never considers are left out unless one is asked for by name.
`docs/collectives.md` has the equations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from meshcast.base import NumberColumn, UnsupportedError, UsageError, copier, format_time, place_of_least
from meshcast.hardware import Cluster, Library
from meshcast.network.algorithms import FAMILIES, AlgorithmFamily
from meshcast.network.plan import CollectivePlan
from meshcast.network.spread import LevelSpread, spread_over_levels
from meshcast.network.steps import PRIMITIVES, Problem, protocol_names
from meshcast.workload import Collective


def plan_collective(
    collective: Collective,
    cluster: Cluster,
    *,
    algorithm: str | None = None,
    protocol: str | None = None,
    spread: tuple[LevelSpread, ...] | None = None,
) -> CollectivePlan:
    """How a collective is carried out; `algorithm` and `protocol` by name overrule the library.

    `spread` is how its groups lie in the cluster where their devices are not those of the same numbers.

    Raises:
        UnsupportedError: No algorithm is known for this kind of collective.
        UsageError: The algorithm or protocol does not apply; the message names those that do.
    """
    if collective.kind not in PRIMITIVES:
        raise UnsupportedError(f"no algorithm is known for the collective {collective.kind}")
    spread = spread_over_levels(collective.group, cluster) if spread is None else spread
    if not spread:
        return CollectivePlan(kind=collective.kind, algorithm="none", why="a group of one has nothing to send")
    if protocol is not None and protocol.lower() not in map(str.lower, protocol_names(spread)):
        raise _not_among("protocol", protocol, [name for name in protocol_names(spread) if name], collective)
    library = _library(spread)
    problem = _problem(collective, spread)
    # Of families that nobody considers no plan is made, unless one is asked for by name.
    families = [each for each in FAMILIES if algorithm is not None or each.considered(library, problem)]
    wanted = [
        (family, plan)
        for family, plan in _plans(collective, spread, families)
        if protocol is None or plan.protocol.lower() == protocol.lower()
    ]
    if algorithm is None:
        chosen_from = [plan for _, plan in wanted]
    else:
        chosen_from = [plan for family, plan in wanted if algorithm.lower() in (family.name, *family.nicknames)]
        if not chosen_from:
            raise _not_among("algorithm", algorithm, sorted({family.name for family, _ in wanted}), collective)
    timed = [(plan, plan.seconds) for plan in chosen_from]  # added up once
    chosen = timed[place_of_least([seconds for _, seconds in timed])][0]
    if any(isinstance(seconds, NumberColumn) for _, seconds in timed):
        return chosen  # of several points: which comes next, and how far behind, is said of one
    others = sorted([(_name(plan), seconds) for plan, seconds in timed if plan is not chosen], key=lambda o: o[1])
    return _chosen(chosen, tuple(others), _why(others, library, algorithm, protocol))


LIBRARY_TITLES: Mapping[Library, str] = {
    "nccl": "NCCL",
    "xla-tpu": "XLA",
    "neuron": "AWS Neuron",
    "hccl": "Gaudi's HCCL",
    "none": "the textbook",
}
"""What plans call whose rules chose them."""
_chosen = copier(CollectivePlan, "others", "why")


def _problem(collective: Collective, spread: tuple[LevelSpread, ...], protocol: str = "") -> Problem:
    return Problem(
        kind=collective.kind,
        size=float(collective.payload_bytes),
        members=collective.group.size,
        copies=collective.copies,
        spread=spread,
        protocol=protocol,
    )


def _plans(
    collective: Collective, spread: tuple[LevelSpread, ...], families: Sequence[AlgorithmFamily]
) -> Iterator[tuple[AlgorithmFamily, CollectivePlan]]:
    """Every plan of some families that applies."""
    for protocol in protocol_names(spread):
        problem = _problem(collective, spread, protocol)
        for family in families:
            made = family.make(problem)
            if made is not None:
                yield family, made


def _library(spread: tuple[LevelSpread, ...]) -> Library:
    """Whose rules hold: those of the innermost level that has a library."""
    return next((at.level.link.library for at in spread if at.level.link.library != "none"), "none")


def _name(plan: CollectivePlan) -> str:
    return f"{plan.algorithm}, {plan.protocol}" if plan.protocol else plan.algorithm


def _why(
    others: list[tuple[str, float]],
    library: Library,
    algorithm: str | None,
    protocol: str | None,
) -> str:
    by = LIBRARY_TITLES[library]
    asked = " and ".join(name for name in (algorithm, protocol) if name)
    if asked:
        return f"asked for: {asked}"
    if not others:
        return f"the only algorithm that {by} has for it"
    name, seconds = others[0]
    return f"the fastest of {len(others) + 1} that {by} chooses from; next is {name} with {format_time(seconds)}"


def _not_among(what: str, asked: str, possible: list[str], collective: Collective) -> UsageError:
    where = f"{collective.kind} of {collective.group.size} devices"
    choice = ", ".join(dict.fromkeys(possible)) or "none: its links have a single nameless one"
    return UsageError(f"{what} {asked!r} does not apply to {where}", fix=f"possible: {choice}")
