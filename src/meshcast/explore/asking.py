"""Searches in one call: `explore(space)`, and `best_plans(model, on=..., devices=...)` for the question that is asked most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from meshcast.base import InfeasibleError, UsageError, nearest
from meshcast.explore.engines import Engine, engine_named
from meshcast.explore.evaluating import cluster_named, cluster_of, options_of
from meshcast.explore.exploration import Accounts, Exploration
from meshcast.explore.keeping import Keeper
from meshcast.explore.measures import Constraints, Known, cost_needs_a_price, objective_named
from meshcast.explore.sampling import TRIALS, Sampled
from meshcast.explore.search import BestFirst, Found
from meshcast.explore.sensitivity import looked_at_again, sensitivities
from meshcast.explore.space import SEARCHES, Combination, Space, SpaceAxis
from meshcast.explore.store import RunStore
from meshcast.explore.sweep import Sweep
from meshcast.hardware import Cluster, Price, check_priced, rented_as
from meshcast.options import check_fidelity, option_places
from meshcast.zoo import Plan

TOP = 5


def explore(
    space: Space,
    *,
    objectives: Sequence[str] = ("time",),
    constraints: Constraints | None = None,
    search: str | None = None,
    trials: int = TRIALS,
    top: int = TOP,
    per: Sequence[str] = (),
    tokens: float | None = None,
    price: str | float | None = None,
    kg_per_kwh: float | None = None,
    then: Mapping[str, Any] | None = None,
    sensitivity: bool = False,
    engine: Engine | str = "processes",
    workers: int | None = None,
    address: str | None = None,
    store: RunStore | None = None,
) -> Exploration:
    """The best points of a space.

    Args:
        space: What is searched over.
        objectives: What is wanted: `time`, `throughput`, `energy`, `cost`, `memory`, `devices`. The first decides what is best.
        constraints: What a point must keep to.
        search: `best` (those that can be among the best, by bounds; of spaces with plans), `exhaustive` (all), `tpe` or `nsga2`
            (samples of large spaces by Optuna). None: the first of them that the space has.
        trials: Points that a sampler may ask for.
        top: How many points are wanted; with `per`, of each group.
        per: Names of axes: the best points are wanted for each of their values.
        tokens: Tokens of a whole run, for days and money.
        price: Dollars of a device and hour, or `list` for the catalogue's.
        kg_per_kwh: Carbon dioxide of electricity; None: the world's on average.
        then: Options of a second look at the best points, such as a finer fidelity.
        sensitivity: Whether numbers of the best point's hardware are tried, each a tenth better.
        engine: Who predicts, or its name.
        workers: Processes of a named engine.
        address: Of a Ray cluster.
        store: Where points are kept as they are finished, and taken from.

    Raises:
        UsageError: Something is not known, or does not go together.
    """
    for name in per:
        if name not in (known := [axis.name for axis in space.axes]):
            raise UsageError(f"{name!r} is no axis", where="per", fix=nearest(name, known))
    if search is not None and search not in SEARCHES:
        raise UsageError(f"no search {search!r}", where="search", fix=nearest(search, SEARCHES))
    if price is None and "cost" in objectives:
        raise cost_needs_a_price()
    _check_choices(space)
    accounts = Accounts(tokens=tokens, kg_per_kwh=kg_per_kwh)
    chosen = tuple(objective_named(name) for name in objectives)
    check_priced(price, [cluster.device for cluster in _machines(space)])
    running = engine_named(engine, workers=workers, address=address) if isinstance(engine, str) else engine
    keeper = Keeper(chosen, top=top, per=per)
    earlier = store.kept() if store is not None else {}

    def record(found: Found) -> None:
        if store is not None and found.point.number not in earlier:
            store.keep(found.point, found.outcome)
        keeper.take(found)

    limits = constraints or Constraints()
    common: dict[str, Any] = {
        "space": space,
        "engine": running,
        "constraints": limits,
        "known_of": lambda combination: known_of(combination, price, accounts),
        "earlier": earlier,
    }
    kind = search or ("best" if space.plans is not None else "exhaustive")
    if kind == "best" and space.plans is None:
        raise UsageError("bounds are of plans, and none are searched over", where="search", fix="exhaustive")
    if kind == "best":
        chooser: BestFirst | Sweep | Sampled = BestFirst(objectives=chosen, top=top, per=tuple(per), **common)
    elif kind == "exhaustive":
        chooser = Sweep(**common)
    else:
        chooser = Sampled(objectives=chosen, sampler=kind, trials=trials, **common)
    result = Exploration(
        found=(), tally=chooser.tally, objectives=chosen, top=top, per=tuple(per), accounts=accounts, constraints=limits
    )
    try:
        try:
            chooser.run(record)
        except KeyboardInterrupt:
            return replace(result, found=_in_order(keeper.found), failed=keeper.failed, interrupted=True)
        left_out = tuple(chooser.left_out) if isinstance(chooser, BestFirst) else ()
        result = replace(result, found=_in_order(keeper.found), failed=keeper.failed, left_out=left_out)
        return _with_more(result, dict(then or {}), running, sensitivity=sensitivity)
    finally:
        if isinstance(engine, str):
            running.close()


def _check_choices(space: Space) -> None:
    """Refuses options that no point could be predicted with, before any is: a misspelt one would fail them all, one by one.

    Raises:
        UsageError: One is not among the values it may have.
    """
    swept = [{axis.name: value} for axis in space.axes if axis.name in option_places() for value in axis.values]
    for changed in ({}, *swept):
        options = options_of({**space.asked, **changed, "plan": None})
        options.check_choices()
        check_fidelity(options.estimate.fidelity)


def _machines(space: Space) -> list[Cluster]:
    """The hardware of a space, before numbers of it are changed."""
    named = next((axis.values for axis in space.axes if axis.name == "on"), (space.asked.get("on"),))
    return [
        cluster_named(on) if isinstance(on, str) else cluster_of(options_of({**space.asked, "on": on, "plan": None}))
        for on in named
    ]


def _in_order(found: Sequence[Found]) -> tuple[Found, ...]:
    return tuple(sorted(found, key=lambda each: each.point.number))


def _with_more(result: Exploration, then: dict[str, Any], engine: Engine, *, sensitivity: bool) -> Exploration:
    """A result with a second look at its best points, and with what would help the first of them."""
    best = result.best
    if then and best:
        result = replace(result, again=tuple(looked_at_again(best, then, engine)), then=then)
    if sensitivity and best:
        result = replace(result, sensitivity=tuple(sensitivities(best[0], engine)))
    return result


def known_of(combination: Combination, price: str | float | None, accounts: Accounts) -> Known:
    """What is known of a combination's points before they are predicted; prices are noted in the accounts."""
    on = combination.device_on  # no stack brings hardware: a sweep over it need not read all other options again
    device = (
        cluster_named(on) if isinstance(on, str) else cluster_of(options_of({**combination.asked, "plan": None}))
    ).device
    name = rented_as(device.name)  # a sweep over numbers of a device has one price
    said = accounts.prices.get(name) or Price.of(price, device)
    if said is not None:
        accounts.prices[name] = said
    devices, units = combination.counted()
    return Known(
        devices=devices,
        units=units,
        capacity_bytes=device.memory_bytes,
        price=said.usd_per_hour if said is not None else None,
    )


def best_plans(
    model: str,
    *,
    on: str,
    devices: int | Sequence[int],
    settings: Mapping[str, Any],
    plan: str | None = None,
    choices: Mapping[str, tuple[Any, ...]] | None = None,
    options: Mapping[str, Any] | None = None,
    **asked: Any,
) -> Exploration:
    """The best plans of a model: `best_plans("llama3-8b", on="dgx-h100", devices=64, settings={"batch": 256})`.

    Args:
        model: A model of the zoo, or a Hugging Face configuration.
        on: The hardware.
        devices: How many, or several numbers to choose from.
        settings: Of the model; `batch` is the global batch.
        plan: Keys that are decided, as a plan's text.
        choices: Values of single keys, in place of the usual ones.
        options: Other options by their flat names, such as `fidelity`.
        **asked: As `explore` takes them.

    Raises:
        UsageError: Something is not known, or does not go together.
        InfeasibleError: No plan divides the model, the batch and the devices.
    """
    counts = (devices,) if isinstance(devices, int) else tuple(devices)
    fixed = {name: (getattr(Plan.parse(plan), name),) for name in Plan.names_in(plan)} if plan is not None else {}
    if both := sorted(fixed.keys() & (choices or {}).keys()):
        raise UsageError(
            f"--plan decides {', '.join(both)}, and --try has values of the same to choose from",
            where="--plan, --try",
            fix=f"leave {both[0]} out of one of them",
        )
    given = {**(options or {}), "on": on, "settings": {name: str(value) for name, value in settings.items()}}
    axes = (SpaceAxis(name="devices", values=counts),) if len(counts) > 1 else ()
    if not axes:
        given["devices"] = counts[0]
    space = Space(model=model, asked=given, axes=axes, plans={**fixed, **(choices or {})})
    found = explore(space, **asked)
    if not found.tally.space:
        raise InfeasibleError(
            f"no plan shares {model} out over {' or '.join(map(str, counts))} devices with a batch of "
            f"{given['settings'].get('batch')}",
            where="--devices",
            fix=f"a batch that more degrees divide, or another number of devices{_open(fixed)}",
        )
    return found


def _open(fixed: Mapping[str, tuple[Any, ...]]) -> str:
    """That keys which are decided may be what leaves no plan."""
    said = ",".join(f"{name}={values[0]}" for name, values in fixed.items())
    return f"; or leave open what --plan {said} decides" if said else ""
