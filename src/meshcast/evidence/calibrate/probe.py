"""A probe: a small JAX program that an id alone describes, so that a measured row can be lowered again at any time."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from meshcast.base import InputError

Value = int | float | str
Settings = dict[str, Value]

LIBRARY = "library"  # products by the vendor's library alone: XLA does not compile and time kernels of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Indices:
    """Values of an integer argument: drawn from `[0, below)`, uniformly or by Zipf's law of exponent `skew`."""

    below: int
    skew: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeBody:
    """The program of a probe: a function, the shapes it takes, and the options that XLA compiles it with.

    Donated arguments are replaced by the first results, in order, before the next run. `flops` are those of products
    and convolutions, for guessing how long it may take; `indices` are by position of the flattened arguments.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    donate: tuple[int, ...] = ()
    indices: Mapping[int, Indices] = field(default_factory=dict)
    flops: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A family and its settings; `tune` among them says how XLA chooses kernels for products."""

    family: str
    settings: tuple[tuple[str, Value], ...]

    @property
    def id(self) -> str:
        """`family:name=value,...`."""
        return f"{self.family}:" + ",".join(f"{name}={value}" for name, value in self.settings)

    @property
    def library(self) -> bool:
        """Whether products come from the vendor's library alone."""
        return dict(self.settings).get("tune") == LIBRARY

    @property
    def arguments(self) -> Settings:
        """The settings that shape the program."""
        return {name: value for name, value in self.settings if name != "tune"}


def probe(family: str, **settings: Value) -> Probe:
    """A probe of a family, settings in the order given."""
    return Probe(family=family, settings=tuple(settings.items()))


def parse(text: str) -> Probe:
    """The probe that an id names."""
    family, colon, rest = text.partition(":")
    pairs = [part.partition("=") for part in rest.split(",")] if rest else []
    if not colon or any(not name or not equals or not value for name, equals, value in pairs):
        raise InputError(f"{text!r} is not a probe's id", fix="it reads like gemm:m=128,n=128,k=128")
    return Probe(family=family, settings=tuple((name, _value(value)) for name, _, value in pairs))


def _value(text: str) -> Value:
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


class ProbeChoices:
    """Reproducible choices of a family: the same on every machine and Python."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def pick(self, options: Sequence[Any]) -> Any:
        """One of them; repeat an option to weigh it."""
        return options[int(self._random.random() * len(options))]

    def chance(self, share: float) -> bool:
        """True in `share` of the cases."""
        return self._random.random() < share

    def log_uniform(self, low: float, high: float, step: int = 1) -> int:
        """Between `low` and `high`, every octave as likely, rounded to a multiple of `step` (at least one)."""
        value = low * math.pow(high / low, self._random.random())
        return max(step, round(value / step) * step)
