"""Changes of hardware as people say them: `nvlink=2x`, `hbm=1.5x`, `sm=+10%`, `memory.bandwidth=6.7TB/s`.

A short name stands for one number or for several that go together: more cores have more arithmetic, a faster clock too. A level
of the network is named by itself and means the rate of its links. Every change becomes new numbers by the keys of `what_if`, so
that `--on` can name the hardware that comes of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal

from meshcast.base import UsageError, nearest
from meshcast.hardware.cluster import Cluster
from meshcast.hardware.what_if import WHAT_IF_MARK, split

FLAG = "--what-if"
EXAMPLE_CHANGES = "write such as nvlink=2x,hbm=1.5x,sm=+10%"
# Keys of a device's numbers by short names; a table's name with a dot stands for all of its numbers.
_ARITHMETIC = ("matrix.", "vector.", "compute.transcendental")
SHORT_NAMES: Mapping[str, tuple[str, ...]] = {
    "hbm": ("memory.bandwidth",),
    "memory": ("memory.bandwidth",),
    "capacity": ("memory.capacity",),
    "l2": ("cache.bandwidth",),
    "cache": ("cache.capacity",),
    "flops": ("matrix.",),
    "sm": ("compute.cores", *_ARITHMETIC),
    "cores": ("compute.cores", *_ARITHMETIC),
    "clock": ("compute.clock", "compute.peak_clock", *_ARITHMETIC),
    "power": ("power.tdp",),
    "launch": ("compute.launch_latency",),
    "host": ("host.bandwidth",),
}
# Numbers of all levels of the network at once.
OF_LEVELS = {"network": "link_bandwidth", "latency": "latency"}
_FACTOR = re.compile(r"(?P<times>\d+(?:\.\d+)?)x|(?P<percent>[+-]\d+(?:\.\d+)?)%")
_NO_FACTOR = re.compile(r"[+-]?[\d.]+(?:[eE][+-]?\d+)?\s*x")  # what was meant as one
_NUMBER = re.compile(r"\s*(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*(?P<unit>.*?)\s*")


def named_with_changes(on: str, cluster: Cluster, changes: str, *, where: str = FLAG) -> str:
    """The name of hardware with changes: `dgx-h100` with `hbm=2x` is `dgx-h100+memory.bandwidth=6.7TB/s`.

    Args:
        on: What the cluster is named by now, changes of its own among it: those of the same numbers are replaced.
        cluster: What that stands for.
        changes: `KEY=2x`, `KEY=+10%` or `KEY=VALUE`, with commas between them.
        where: What says them, for errors.

    Raises:
        UsageError: One is none, there is no such number, or one number is changed twice.
    """
    base, numbers = split(on)
    numbers = dict(numbers)
    seen: dict[str, str] = {}
    for item in separate_changes(changes, where=where):
        key, _, value = (part.strip() for part in item.partition("="))
        for number, text in _changed(cluster, key, value, where):
            if number in seen:
                raise UsageError(f"{item} and {seen[number]} both change {number}", where=where, fix="leave one out")
            seen[number] = item
            numbers[number] = text
    return base + "".join(f"{WHAT_IF_MARK}{key}={value}" for key, value in numbers.items())


def separate_changes(changes: str, *, where: str = FLAG) -> list[str]:
    """The single changes of a text with commas.

    Raises:
        UsageError: There is none, or one has no value.
    """
    found = [item.strip() for item in changes.split(",") if item.strip()]
    for item in found:
        key, equals, value = item.partition("=")
        if not (key.strip() and equals and value.strip()):
            raise UsageError(f"{item!r} changes nothing", where=where, fix=EXAMPLE_CHANGES)
    if not found:
        raise UsageError(f"{changes!r} changes nothing", where=where, fix=EXAMPLE_CHANGES)
    return found


def _changed(cluster: Cluster, key: str, value: str, where: str) -> Iterator[tuple[str, str]]:
    """New numbers by the keys of `what_if`."""
    numbers = _numbers(cluster, key, where)
    factor = _factor(value, f"{key}={value}", where)
    if factor is None:
        if len(numbers) > 1:
            raise UsageError(
                f"{key} stands for {len(numbers)} numbers ({', '.join(numbers)}), which cannot all be {value}",
                where=where,
                fix=f"give a factor ({key}=2x, {key}=+10%), or name one of them",
            )
        ((name, present),) = numbers.items()
        _refuse_no_unit(f"{key}={value}", value, present, where)
        yield name, value
        return
    if (cores := "compute.cores") in numbers and (whole := cluster.device.cores):
        factor = Decimal(max(1, round(whole * factor))) / whole  # of which there are whole ones
    for name, text in numbers.items():
        found = _NUMBER.fullmatch(text)
        assert found is not None, f"{name} = {text}"
        number = Decimal(found["number"]) * factor
        whole_ones = name == cores or name.endswith(".size")
        yield name, f"{round(number) if whole_ones else _plain(number)}{found['unit'].replace(' ', '')}"


def _refuse_no_unit(item: str, value: str, present: str, where: str) -> None:
    """Refuses a bare number in place of one with a unit, while it is known which option wrote it."""
    new, old = _NUMBER.fullmatch(value), _NUMBER.fullmatch(present)
    if new is not None and old is not None and old["unit"] and not new["unit"]:
        key = item.partition("=")[0]
        raise UsageError(
            f"{item} has no unit, where {present.strip()} stands now",
            where=where,
            fix=f"write such as {key}={present.replace(' ', '')}, or a factor: {key}=2x",
        )


def _plain(number: Decimal) -> str:
    """A number without an exponent, whose sign would be read as another change."""
    return f"{number:.12f}".rstrip("0").rstrip(".")


def _factor(value: str, item: str, where: str) -> Decimal | None:
    """What a value multiplies by; None where it is a number of its own.

    Raises:
        UsageError: It leaves nothing.
    """
    found = _FACTOR.fullmatch(value.replace(" ", ""))
    if found is None:
        if _NO_FACTOR.fullmatch(value.strip()):
            raise UsageError(
                f"{item}: a factor is a number above 0 without an exponent, got {value!r}",
                where=where,
                fix=EXAMPLE_CHANGES,
            )
        return None
    factor = Decimal(found["times"]) if found["times"] else 1 + Decimal(found["percent"]) / 100
    if factor <= 0:
        raise UsageError(f"{item} leaves nothing", where=where, fix="write a factor above 0, such as 0.5x")
    return factor


def _numbers(cluster: Cluster, key: str, where: str) -> dict[str, str]:
    """The numbers that a name stands for, as they are written now.

    Raises:
        UsageError: There are none of it here.
    """
    levels = {level.name: level for level in cluster.levels}
    facts = {name: fact.text for name, fact in cluster.device.facts.items()}
    written = {
        f"{name}.{what}": text
        for name, level in levels.items()
        for what, text in (
            ("link_bandwidth", f"{level.link_bandwidth * 1e-9:.10f}GB/s"),
            ("latency", f"{level.latency_s * 1e6:.10f}us"),
            ("size", f"{level.size}"),
        )
    }
    if key in levels:
        return {f"{key}.link_bandwidth": written[f"{key}.link_bandwidth"]}
    if key in OF_LEVELS:
        found = {name: text for name, text in written.items() if name.endswith("." + OF_LEVELS[key])}
    elif key in SHORT_NAMES:
        found = {name: text for name, text in facts.items() if name.startswith(SHORT_NAMES[key])}
    else:
        found = {name: text for name, text in {**facts, **written}.items() if name == key}
    if not found:
        known = [*levels, *OF_LEVELS, *SHORT_NAMES, *facts, *written]
        raise UsageError(f"{cluster.name} has no number {key!r}", where=where, fix=nearest(key, known))
    return found
