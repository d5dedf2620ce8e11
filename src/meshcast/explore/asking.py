"""Searches in one call: `explore(space)`, and `best_plans(model, on=..., devices=...)` for the question that is asked most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meshcast.base import InfeasibleError, UsageError, nearest
from meshcast.explore.engines import Engine, engine_named
from meshcast.explore.evaluating import cluster_of, options_of
from meshcast.explore.exploration import Accounts, Exploration
from meshcast.explore.measures import Constraints, Known, objective_named
from meshcast.explore.money import Price
from meshcast.explore.search import BestFirst, Found
from meshcast.explore.space import Combination, Space, SpaceAxis
from meshcast.zoo import Plan

TOP = 5


def explore(
    space: Space,
    *,
    objectives: Sequence[str] = ("time",),
    constraints: Constraints | None = None,
    top: int = TOP,
    per: Sequence[str] = (),
    tokens: float | None = None,
    price: str | float | None = None,
    kg_per_kwh: float | None = None,
    engine: Engine | str = "processes",
    workers: int | None = None,
) -> Exploration:
    """The best points of a space.

    Args:
        space: What is searched over.
        objectives: What is wanted: `time`, `throughput`, `energy`, `cost`, `memory`, `devices`. The first decides what is best.
        constraints: What a point must keep to.
        top: How many points are wanted; with `per`, of each group.
        per: Names of axes: the best points are wanted for each of their values.
        tokens: Tokens of a whole run, for days and money.
        price: Dollars of a device and hour, or `list` for the catalogue's.
        kg_per_kwh: Carbon dioxide of electricity; None: the world's on average.
        engine: Who predicts, or its name.
        workers: Processes of a named engine.

    Raises:
        UsageError: Something is not known, or does not go together.
    """
    for name in per:
        if name not in (known := [axis.name for axis in space.axes]):
            raise UsageError(f"{name!r} is no axis", where="per", fix=nearest(name, known))
    accounts = Accounts(tokens=tokens, kg_per_kwh=kg_per_kwh)
    chosen = tuple(objective_named(name) for name in objectives)
    running = engine_named(engine, workers=workers) if isinstance(engine, str) else engine
    found: list[Found] = []
    search = BestFirst(
        space=space,
        engine=running,
        objectives=chosen,
        constraints=constraints or Constraints(),
        known_of=lambda combination: known_of(combination, price, accounts),
        top=top,
        per=tuple(per),
    )
    interrupted = False
    try:
        search.run(found.append)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        if isinstance(engine, str):
            running.close()
    return Exploration(
        found=tuple(sorted(found, key=lambda each: each.point.number)),
        tally=search.tally,
        objectives=chosen,
        top=top,
        accounts=accounts,
        left_out=tuple(search.left_out),
        interrupted=interrupted,
    )


def known_of(combination: Combination, price: str | float | None, accounts: Accounts) -> Known:
    """What is known of a combination's points before they are predicted; prices are noted in the accounts."""
    device = cluster_of(options_of({**combination.asked, "plan": None})).device
    said = accounts.prices.get(device.name) or Price.of(price, device)
    if said is not None:
        accounts.prices[device.name] = said
    return Known(
        devices=combination.devices,
        units=combination.shape.units(combination.batch),
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
            fix="a batch that more degrees divide, or another number of devices",
        )
    return found
