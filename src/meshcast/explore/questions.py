"""`PlanQuestion`: what `meshcast plan` is asked: the best plan, the fewest devices for a step time, the largest size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from meshcast.base import InfeasibleError, MeshcastError, UsageError, format_time, nearest
from meshcast.explore.asking import best_plans
from meshcast.explore.exploration import Exploration
from meshcast.explore.measures import Constraints
from meshcast.explore.shape import model_shape
from meshcast.zoo import Plan

LARGEST = ("seq", "mbs")
DOUBLINGS = 24  # of a size, at the most


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanQuestion:
    """A question about plans.

    Attributes:
        model: The model.
        on: The hardware.
        devices: Numbers of devices.
        settings: Of the model.
        plan: Keys that are decided.
        choices: Values of keys to search over.
        options: Other options, by their flat names.
        asked: As `explore` takes them.
        within_s: The longest step: the fewest devices that keep to it are wanted.
        largest: `seq` or `mbs`: the largest that fits is wanted; with `within_s` the largest with a step that keeps to it.
    """

    model: str
    on: str
    devices: tuple[int, ...]
    settings: Mapping[str, Any]
    plan: str | None = None
    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    asked: Mapping[str, Any] = field(default_factory=dict)
    within_s: float | None = None
    largest: str | None = None

    def title(self, found: Exploration) -> str:
        """What the answer is, in one line."""
        best = found.best
        counts = " or ".join(f"{n:,}" for n in self.devices)
        what = f"plans of {self.model} on {counts} device{'' if self.devices == (1,) else 's'} of {self.on}"
        if not best:
            return what
        if self.largest is not None:
            value = (
                best[0].point.settings.get("seq") if self.largest == "seq" else Plan.parse(best[0].point.plan or "").mbs
            )
            kept = "" if self.within_s is None else f" and keeps to a step of {format_time(self.within_s)}"
            return f"largest {self.largest} that fits{kept}: {value}; {what}"
        if self.within_s is not None:
            return f"fewest devices for a step of {format_time(self.within_s)}: {best[0].outcome.devices:,}; {what}"
        return what

    def search(self, **changed: Any) -> Exploration:
        """The best plans, with some of the question changed."""
        asked = replace(self, **changed)
        return best_plans(
            asked.model,
            on=asked.on,
            devices=asked.devices,
            settings=asked.settings,
            plan=asked.plan,
            choices=asked.choices,
            options=asked.options,
            **asked.asked,
        )


def answer_question(question: PlanQuestion) -> Exploration:
    """The answer to a question about plans.

    Raises:
        UsageError: Something is not known, or does not go together.
        InfeasibleError: No plan divides what is asked for.
    """
    if question.largest is not None and question.largest not in LARGEST:
        raise UsageError(
            f"{question.largest!r} is no size that is searched for",
            where="--largest",
            fix=nearest(question.largest, LARGEST),
        )
    if question.largest == "mbs" and "mbs" in Plan.names_in(question.plan):
        raise UsageError(
            "--plan decides mbs, and the largest is searched for",
            where="--plan, --largest",
            fix="leave one of them out",
        )
    if question.largest is None and question.within_s is None:
        return question.search()
    limits = {**question.asked, "constraints": Constraints(step_time_s=question.within_s)}
    if question.largest is not None:
        return _largest(replace(question, asked=limits) if question.within_s is not None else question)
    found: Exploration | None = None
    for count in sorted(question.devices):
        try:
            found = question.search(devices=(count,), asked=limits)
        except InfeasibleError:
            continue
        if found.best or found.interrupted:
            return found
    if found is None:
        raise InfeasibleError(
            f"no plan shares {question.model} out over {', '.join(map(str, question.devices))} devices",
            where="--devices",
            fix="another batch, or other numbers of devices",
        )
    return found


def _largest(question: PlanQuestion) -> Exploration:
    """The largest size with a plan that fits, by doubling; of it the best plan."""
    best: Exploration | None = None
    for changed in _sizes(question):
        try:
            found = question.search(**changed)
        except InfeasibleError:
            break
        if not found.best:
            best = best or found
            break
        best = found
        if found.interrupted:
            break
    assert best is not None
    return best


def _sizes(question: PlanQuestion) -> Iterator[dict[str, Any]]:
    """Changes of a question, each of twice the size of the one before."""
    if question.largest == "mbs":
        for power in range(DOUBLINGS):
            yield {"choices": {**question.choices, "mbs": (2**power,)}}
        return
    first = model_shape(question.model, {name: str(value) for name, value in question.settings.items()}).seq
    for power in range(DOUBLINGS):
        yield {"settings": {**question.settings, "seq": first * 2**power}}


def price_notes(found: Exploration) -> list[str]:
    """Whose prices and which electricity a table is counted with."""
    accounts = found.accounts
    notes = [
        f"price of {name}: ${price.usd_per_hour:g} an hour, {price.said}" for name, price in accounts.prices.items()
    ]
    if (grid := accounts.grid()) is not None:
        notes.append(f"{grid['kg_per_kwh']:g} kg of CO2 a kWh: {grid['said']}; energy is of the devices alone")
    return notes


def read_counts_of(text: str, *, where: str) -> tuple[int, ...]:
    """Whole numbers with commas between them.

    Raises:
        UsageError: One is none.
    """
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = (0,)
    if min(found) < 1:
        raise UsageError(f"{text!r} are no numbers of devices", where=where, fix="such as 64, or 64,128,256")
    return tuple(dict.fromkeys(found))


def read_choices(tries: Iterable[str]) -> dict[str, tuple[Any, ...]]:
    """Values of a plan's keys: `tp=4,8`.

    Raises:
        UsageError: One is none, or a key or value is not known.
    """
    choices: dict[str, tuple[Any, ...]] = {}
    for text in tries:
        key, equals, values = text.partition("=")
        if not equals or not values:
            raise UsageError(f"{text!r} is not KEY=VALUE", where="--try", fix="such as --try tp=4,8")
        if key in choices:
            raise UsageError(f"{key} is given twice", where="--try", fix="give all of its values at once")
        try:
            choices[key] = tuple(choice_of(key, value) for value in values.split(","))
        except MeshcastError as error:
            error.where = "--try"
            raise
    return choices


def choice_of(key: str, value: str) -> Any:
    """A value of a plan's key, as plans have it."""
    if value in ("none", "auto") and key in ("attention", "stack", "schedule"):
        return None
    (name,) = Plan.names_in(f"{key}={value}")
    # Keys that need another one are read beside it.
    beside = {"vp": "pp=2,", "schedule": "pp=2,", "sp": "tp=2,"}.get(key, "")
    if key == "schedule" and value == "interleaved":
        beside = "pp=2,vp=2,"
    if key == "attention" and value not in ("plain", "flash"):
        beside = "cp=2,"
    found = getattr(Plan.parse(f"{beside}{key}={value}"), name)
    return found
