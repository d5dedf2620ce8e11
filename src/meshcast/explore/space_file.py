"""A space from a TOML file: every mistake in it is told with its line (`docs/exploring.md` has the format)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshcast.base import Dimension, InputError, MeshcastError, nearest, parse_quantity
from meshcast.explore.measures import OBJECTIVES, Constraints
from meshcast.explore.money import count_of
from meshcast.explore.plans import PlanSpace
from meshcast.explore.questions import choice_of
from meshcast.explore.shape import ModelShape
from meshcast.explore.space import HARDWARE, MODEL, SEARCHES, SETTING, Space, SpaceAxis
from meshcast.hardware import VALUE_OF_A_FLAG, Document, Price, check_priced, named_with_changes, read_document, resolve
from meshcast.options import check_fidelity, option_places
from meshcast.programs import setting_value
from meshcast.zoo import SERVE, Builder, Plan, hint, model_named

SCHEMA = "meshcast.space/1"
_TOP = ("schema", "model", "on", "devices", "set", "options", "hardware", "plan", "plans", "want", "limits", "then")
_WANT = ("objectives", "top", "per", "search", "trials", "tokens", "price", "kg_per_kwh")
MOST_STEPS = 1_000_000  # values of a range
PRICES = 'dollars per device and hour, such as 2.5, or "list", or "list,tpu-v5p=4.20"'
VALUES = 'texts such as "3.35 TB/s", "2x" or "+10%"'
_LIMITS: dict[str, Dimension | None] = {
    "step_time": Dimension.TIME, "power": Dimension.POWER, "devices": None, "memory_share": None,
}  # fmt: skip
_FIELDS = {"step_time": "step_time_s", "power": "watts", "devices": "devices", "memory_share": "memory_share"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceFile:
    """A space, and what is wanted of it.

    Attributes:
        space: The space.
        asked: What is wanted, as `explore` takes it.
        then: Options of a second look at the best points, by their flat names; empty where there is none.
        text: The file.
    """

    space: Space
    asked: Mapping[str, Any]
    then: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""


def read_space(path: Path) -> SpaceFile:
    """The space of a file.

    Raises:
        InputError: The file cannot be read, or says something that no space has.
    """
    document = read_document(path)
    return _SpaceReader(document).read(path.read_text(encoding="utf-8"))


class _SpaceReader:
    """Reads one file; whatever is wrong is told with the place of its key."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._data = document.data
        self._axes: list[SpaceAxis] = []

    def read(self, text: str) -> SpaceFile:
        self._known(self._data, _TOP, ())
        if self._data.get("schema") != SCHEMA:
            raise self._wrong(("schema",), f"a space has schema = {SCHEMA!r}", "write it on the first line")
        model = self._one_or_axis(MODEL, self._data.get("model"), ("model",), str)
        named = self._data.get("model")
        self._check_models(named if isinstance(named, list) else [named])
        asked: dict[str, Any] = {"settings": {}}
        for name, kind in (("on", str), ("devices", int)):
            if name in self._data:
                self._into(asked, name, name, self._data[name], (name,), kind)
        counts = self._data.get("devices", 1)
        for count in counts if isinstance(counts, list) else [counts]:
            if count < 1:
                raise self._wrong(("devices",), f"{count} devices", "write how many there are, 1 or more")
        if "on" not in asked and all(axis.name != "on" for axis in self._axes):
            raise self._wrong(("on",), "a space says what it runs on", 'on = "dgx-h100", or a list')
        for name, value in self._table("set"):
            self._into(asked["settings"], name, SETTING + name, value, ("set", name), (str, int, float, bool))
        self._check_settings(named if isinstance(named, list) else [named])
        places = option_places()
        for name, value in self._table("options"):
            if name not in places and name != "stack":
                raise self._wrong(("options", name), f"no option {name!r}", nearest(name, places))
            self._into(asked, name, name, value, ("options", name), (str, int, float, bool))
            self._check_option("options", name, value)
        machines = self._machines()
        for place, value in self._hardware():
            name = ".".join(place[1:])
            self._axes.append(SpaceAxis(name=HARDWARE + name, values=value))
            # Every value on one machine, and one value on all of them: what is wrong is told before anything is predicted.
            tried = [(machines[0], each) for each in value] + [(on, value[0]) for on in machines[1:]]
            self._check_numbers(place, tried)
        plans = self._plans(asked)
        try:
            space = Space(model=model, asked=asked, axes=tuple(self._axes), plans=plans)
        except MeshcastError as error:
            raise self._wrong((), error.message, error.fix or "") from None
        return SpaceFile(space=space, asked=self._asked(), then=self._then(), text=text)

    def _into(self, table: dict[str, Any], key: str, axis: str, value: Any, place: tuple[str, ...], kind: Any) -> None:
        """Puts a value where all points have it, or makes an axis of several."""
        one = self._one_or_axis(axis, value, place, kind)
        if one is not None:
            table[key] = str(one) if axis.startswith(SETTING) else one

    def _one_or_axis(self, axis: str, value: Any, place: tuple[str, ...], kind: Any) -> Any:
        if value is None:
            return None
        values = value if isinstance(value, list) else [value]
        for each in values:
            wanted = kind if isinstance(kind, tuple) else (kind,)
            if not isinstance(each, wanted) or (isinstance(each, bool) and bool not in wanted):
                words = " or ".join(one.__name__ for one in wanted)
                raise self._wrong(
                    place, f"{'.'.join(place)} is {each!r}, and no {words}", "such a value, or a list of them"
                )
        if not isinstance(value, list):
            return value
        if not values:
            raise self._wrong(place, f"{'.'.join(place)} has no values", "give it one or more")
        self._once(place, values)
        self._axes.append(SpaceAxis(name=axis, values=tuple(values)))
        return None

    def _once(self, place: tuple[str, ...], values: Sequence[Any]) -> None:
        """Refuses values that are listed twice: their points would be predicted and told twice."""
        said = [str(value).strip() for value in values]
        if (twice := next((each for each in said if said.count(each) > 1), None)) is not None:
            raise self._wrong(place, f"{'.'.join(place)} has {twice} twice", "give each value once")

    def _hardware(self) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
        """Places of numbers of hardware with their values, each a list or a range: `{ from = "1x", to = "4x", steps = 4 }`."""
        for keys, value in _flat(dict(self._table("hardware"))):
            name, place = ".".join(keys), ("hardware", *keys)
            values = value if isinstance(value, list) else [value]
            if isinstance(value, dict):
                values = self._range(value, place)
            if not values or not all(isinstance(each, str) for each in values):
                raise self._wrong(place, f"{name} is {value!r}", VALUES)
            if isinstance(value, list):
                self._once(place, values)
            yield place, tuple(values)

    def _machines(self) -> list[str]:
        """What the space runs on."""
        given: Any = self._data.get("on")
        machines: list[str] = given if isinstance(given, list) else [given]
        for on in machines:
            try:
                resolve(on)
            except MeshcastError as error:
                raise self._wrong(("on",), error.message, error.fix or "") from None
        return machines

    def _check_numbers(self, place: tuple[str, ...], tried: list[tuple[str, str]]) -> None:
        """Refuses numbers that hardware does not have, and values that they cannot take."""
        name = ".".join(place[1:])
        for on, value in tried:
            try:
                resolve(named_with_changes(on, resolve(on), f"{name}={value}", where="hardware"))
            except MeshcastError as error:
                # What fits a flag is told there; a space takes factors as well.
                fix = VALUES if error.fix == VALUE_OF_A_FLAG else error.fix or ""
                raise self._wrong(place, error.message, fix) from None

    def _check_option(self, table: str, name: str, value: Any) -> None:
        """Refuses values of an option that are of another kind than its own, or not among those that there are."""
        if name == "stack":
            return  # its file is read before anything is predicted
        option = option_places()[name].field
        if value == []:
            raise self._wrong((table, name), f"{table}.{name} has no values", "give it one or more")
        for each in value if isinstance(value, list) else [value]:
            try:
                option.check_choice(option.taken(each))
                if name == "fidelity":
                    check_fidelity(each)
            except MeshcastError as error:
                raise self._wrong((table, name), error.message, error.fix or "") from None

    def _check_models(self, names: list[Any]) -> None:
        """Refuses names that are neither a model's, a file's nor a function's."""
        for name in names:
            known = not isinstance(name, str) or ":" in name or model_named(name) is not None
            if not known and not (name and Path(name).exists()):
                raise self._wrong(("model",), f"no model or file {name!r}", hint(name))

    def _check_settings(self, models: list[Any]) -> None:
        """Refuses settings that a model has not, and values that are none of theirs: each alone, in every mode that is asked."""
        settings = {name: value if isinstance(value, list) else [value] for name, value in self._table("set")}
        modes = settings.pop("mode", [None])
        for model in models:
            builder = model_named(model) if isinstance(model, str) else None
            if builder is None:
                continue  # a file or a function says itself what it takes
            for mode in modes:
                if mode == SERVE:
                    continue  # two programs, with settings of both
                around = {"mode": mode} if mode is not None else {}
                self._check_setting(builder, "mode", list(around.values()), {})
                for name, values in settings.items():
                    self._check_setting(builder, name, values, around)

    def _check_setting(self, builder: Builder, name: str, values: list[Any], around: dict[str, Any]) -> None:
        for value in values:
            try:
                builder.settled({**around, name: setting_value(str(value))})
            except MeshcastError as error:
                raise self._wrong(("set", name), error.message, error.fix or "") from None

    def _range(self, value: Mapping[str, Any], place: tuple[str, ...]) -> list[str]:
        try:
            low, high, steps = float(value["from"].rstrip("x")), float(value["to"].rstrip("x")), int(value["steps"])
        except (KeyError, ValueError, AttributeError, TypeError, OverflowError):
            low, high, steps = 0.0, 0.0, 0
        if steps > MOST_STEPS:
            raise self._wrong(place, f"a range of {steps:,} values", f"{MOST_STEPS:,} at the most")
        if not 0 < low <= high < math.inf or steps < 2:
            raise self._wrong(place, f"{value} is no range", '{ from = "1x", to = "4x", steps = 4 }')
        # Equal factors between neighbours: rates are compared by their ratios.
        return [f"{low * (high / low) ** (step / (steps - 1)):.6g}x" for step in range(steps)]

    def _plans(self, asked: dict[str, Any]) -> dict[str, tuple[Any, ...]] | None:
        if "plans" in self._data:
            if "plan" in self._data:
                raise self._wrong(("plans",), "plans are listed, and searched over in [plan]", "leave one out")
            texts = self._data["plans"]
            texts = texts if isinstance(texts, list) else [texts]
            for text in texts:
                try:
                    Plan.parse(text)
                except MeshcastError as error:
                    raise self._wrong(("plans",), error.message, error.fix or "") from None
            self._once(("plans",), texts)
            self._axes.append(SpaceAxis(name="plan", values=tuple(texts)))
            return None
        if "plan" not in self._data:
            return None
        choices: dict[str, tuple[Any, ...]] = {}
        for name, value in self._table("plan"):
            values = value if isinstance(value, list) else [value]
            if not values:
                raise self._wrong(("plan", name), f"plan.{name} has no values", "give it one or more")
            self._once(("plan", name), values)
            try:
                choices[name] = tuple(_choice(name, each) for each in values)
                PlanSpace(shape=_ANY, devices=1, batch=1, choices={name: choices[name]})
            except MeshcastError as error:
                raise self._wrong(("plan", name), error.message, error.fix or "") from None
        return choices

    def _asked(self) -> dict[str, Any]:
        """What is wanted, as `explore` takes it."""
        want = dict(self._table("want"))
        self._known(want, _WANT, ("want",))
        found: dict[str, Any] = {name: want[name] for name in ("search", "price") if name in want}
        for name in ("top", "trials"):
            if name in want:
                found[name] = self._number(("want", name), want[name], whole=True)
        if "kg_per_kwh" in want:
            found["kg_per_kwh"] = self._number(("want", "kg_per_kwh"), want["kg_per_kwh"])
        if found.get("search", "best") not in SEARCHES:
            raise self._wrong(
                ("want", "search"), f"no search {found['search']!r}", nearest(str(found["search"]), SEARCHES)
            )
        for name in ("objectives", "per"):
            if name in want:
                given = want[name]
                found[name] = tuple(given) if isinstance(given, list) else (given,)
        axes = [axis.name for axis in self._axes]
        for name in found.get("per", ()):
            if name not in axes:
                raise self._wrong(("want", "per"), f"{name!r} is no axis", nearest(str(name), axes))
        if not found.get("objectives", OBJECTIVES):
            raise self._wrong(("want", "objectives"), "nothing is wanted", 'objectives = ["time"], or leave it out')
        for objective in found.get("objectives", ()):
            if not isinstance(objective, str) or objective not in OBJECTIVES:
                raise self._wrong(
                    ("want", "objectives"), f"no objective {objective!r}", nearest(str(objective), OBJECTIVES)
                )
        if "price" in found:
            self._check_price(found["price"])
        if "tokens" in want:
            try:
                found["tokens"] = count_of(str(want["tokens"]), where="tokens")
            except MeshcastError as error:
                raise self._wrong(("want", "tokens"), error.message, error.fix or "") from None
        limits: dict[str, Any] = {}
        for name, value in self._table("limits"):
            self._known({name: value}, tuple(_LIMITS), ("limits",))
            dimension = _LIMITS[name]
            try:
                quantity = parse_quantity(str(value), dimension) if dimension is not None else value
            except InputError as error:
                raise self._wrong(("limits", name), error.message, error.fix or "") from None
            limit = limits[_FIELDS[name]] = self._number(("limits", name), quantity, whole=name == "devices")
            if name == "memory_share" and limit > 1:
                message = f"limits.memory_share is {limit:g}, and a device has no more than all of its memory"
                raise self._wrong(("limits", name), message, "a share such as 0.9")
        if limits:
            found["constraints"] = Constraints(**limits)
        return found

    def _check_price(self, price: Any) -> None:
        """Refuses what is no price, and list prices that the catalogue has not."""
        if isinstance(price, bool) or not isinstance(price, str | int | float):
            raise self._wrong(("want", "price"), f"{price!r} is no price", PRICES)
        try:
            check_priced(price, [resolve(on).device for on in self._machines()])
        except MeshcastError as error:
            raise self._wrong(("want", "price"), error.message, error.fix or PRICES) from None
        for on in self._machines():
            try:
                Price.of(price, resolve(on).device)
            except MeshcastError as error:
                raise self._wrong(("want", "price"), error.message, PRICES) from None

    def _number(self, place: tuple[str, ...], value: Any, *, whole: bool = False) -> float:
        """A number above zero; a whole one where there are no halves of what it counts."""
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not value > 0:
            kind = "whole number" if whole else "number"
            raise self._wrong(place, f"{'.'.join(place)} is {value!r}, and no {kind} above zero", "such as 1")
        return value

    def _then(self) -> dict[str, Any]:
        """Options of a second look."""
        places = option_places()
        for name, value in self._table("then"):
            if name not in places and name != "stack":
                raise self._wrong(("then", name), f"no option {name!r}", nearest(name, places))
            if isinstance(value, list):
                raise self._wrong(
                    ("then", name), f"then.{name} is {value!r}", "a second look has one value of each option"
                )
            self._check_option("then", name, value)
        return dict(self._table("then"))

    def _table(self, name: str) -> Iterator[tuple[str, Any]]:
        table = self._data.get(name, {})
        if not isinstance(table, dict):
            raise self._wrong((name,), f"{name} is no table", f"[{name}]")
        yield from table.items()

    def _known(self, table: Mapping[str, Any], known: tuple[str, ...], place: tuple[str, ...]) -> None:
        for name in table:
            if name not in known:
                raise self._wrong((*place, name), f"unknown key {name!r}", self._belongs(name, known, place))

    def _belongs(self, name: str, known: tuple[str, ...], place: tuple[str, ...]) -> str:
        """Where a key that stands outside of all tables has its place, or what it may be meant for."""
        if not place and (name in option_places() or name == "stack"):
            return f"write it below [options]: {name} = ..."
        if not place and name in ("settings", "batch", "seq"):
            return "write settings of the model below [set]: batch = 64"
        return nearest(name, known)

    def _wrong(self, place: tuple[str, ...], message: str, fix: str) -> InputError:
        where = self._document.place(place) if place else str(self._document.path)
        return InputError(message, where=where, fix=fix)


_ANY = ModelShape(
    name="", layers=1, first=0, period=1, heads=1, kv_heads=1, experts=0, width=1, vocab=1, seq=1, batch=1, parameters=1,
    unit="samples",
)  # fmt: skip


def _choice(name: str, value: Any) -> Any:
    if name == "fsdp-in-stages":
        return bool(value)
    return choice_of(name, str(int(value)) if isinstance(value, bool) else str(value))


def _flat(table: Mapping[str, Any], around: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Keys of nested tables with their values; a range is a value."""
    for name, value in table.items():
        if isinstance(value, dict) and value and "from" not in value:
            yield from _flat(value, (*around, name))
        else:
            yield (*around, name), value
