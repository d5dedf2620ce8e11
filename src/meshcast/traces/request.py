"""A trace that is asked for, and what was written of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshcast.base import UsageError
from meshcast.options import Options
from meshcast.traces.anonymous import parse_coarseness

Teller = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """A trace that is asked for.

    Attributes:
        target: Whatever `predict` takes, or what `job_source` found it to be.
        options: Everything else that the prediction depends on.
        out: A file, or the prefix of several.
        ranks: Which ranks, as `0-7,16`; None for all, in timelines for one of each kind.
        unroll: Whether every turn of a loop is written out; None as the format does it.
        dedup: Whether equal ranks have one file.
        schema: The generation of Chakra's schema: `current` or `v0.0.4`.
        memory: Whether nodes name what they read and write.
        anonymise: Whether all names of the program are left out.
        coarsen: How coarse sizes are made of an anonymous trace, as `5%`; None leaves them.
    """

    target: Any
    options: Options
    out: Path
    ranks: str | None = None
    unroll: bool | None = None
    dedup: bool = False
    schema: str = "current"
    memory: bool = True
    anonymise: bool = False
    coarsen: str | None = None

    @property
    def coarseness(self) -> float:
        """The share by which sizes may be off; 0 for none.

        Raises:
            UsageError: It is no share, or names would be left in.
        """
        if self.coarsen is None:
            return 0.0
        if not self.anonymise:
            raise UsageError("sizes are coarsened of anonymous traces alone", where="--coarsen", fix="add --anonymise")
        return parse_coarseness(self.coarsen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was written: lines for people, and an object for programs."""

    lines: tuple[str, ...]
    summary: Mapping[str, Any]

    def __str__(self) -> str:
        return "\n".join(self.lines)
