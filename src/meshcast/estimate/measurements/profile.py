"""A profile, read: what was measured of each probe beside the kernels that we make of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshcast.base import InputError
from meshcast.estimate.measurements.file import ProfileHeader, read_rows
from meshcast.estimate.measurements.kernels import kernel_from_json
from meshcast.lower import Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A probe that ran."""

    id: str
    family: str
    seconds: float  # with at least one kernel running, a run
    row: dict[str, Any]

    def kernels(self) -> tuple[tuple[Kernel, int], ...]:
        """Our kernels with how often each runs.

        Raises:
            InputError: The profile was measured but not lowered.
        """
        lowered = self.row.get("lowered")
        if lowered is None:
            reason = self.row.get("not_lowered", "it has not been lowered yet")
            raise InputError(f"no kernels: {reason}", where=self.id, fix="meshcast calibrate --relower FILE")
        return tuple((kernel, int(count)) for kernel, count in self.beside("lowered", 1))

    def beside(self, name: str, least: float) -> Iterator[tuple[Kernel, float]]:
        """The kernels of ours that the row lists under `name`, each with its number; none where it lists none.

        Raises:
            InputError: They are no pairs of a kernel and a number of at least `least`.
        """
        listed = self.row.get(name, ())
        for pair in listed if isinstance(listed, list | tuple) else (listed,):
            if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], dict)):
                raise InputError(f"{name!r} holds {pair!r:.80}, no pair of a kernel and a number", where=self.id)
            kernel, number = pair
            if type(number) not in (int, float) or not least <= number < math.inf:
                raise InputError(
                    f"{name!r} has {number!r} beside a kernel, no number of {least:g} or more", where=self.id
                )
            yield kernel_from_json(kernel), number


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A device's measurements; probes that did not run are not among them."""

    header: ProfileHeader
    measurements: tuple[Measurement, ...]

    def timed_kernels(self) -> list[tuple[Kernel, float, str]]:
        """Every kernel that a time was put beside, with its seconds and the probe it was measured in.

        Raises:
            InputError: No row has any: the profile was lowered by an older version, or not at all.
        """
        found = [
            (kernel, us * 1e-6, measurement.id)
            for measurement in self.measurements
            for kernel, us in measurement.beside("paired", 0.0)
        ]
        if not found:
            raise InputError(
                f"none of the {len(self.measurements)} probes has times beside kernels of ours",
                fix="put them there with meshcast calibrate --relower FILE [--hlo DIR]",
            )
        return found

    def lowered(self) -> Iterator[tuple[Measurement, tuple[tuple[Kernel, int], ...]]]:
        """Measurements that have our kernels, with them."""
        for measurement in self.measurements:
            if "lowered" in measurement.row:
                yield measurement, measurement.kernels()


def read_profile(path: Path) -> Profile:
    """The profile in a file; needs no jax.

    Raises:
        InputError: It cannot be read, or is not a profile.
    """
    header, rows = read_rows(path)
    measured = []
    for row in rows:
        if "error" in row:
            continue
        busy: Any = row.get("busy_us")
        if type(busy) not in (int, float) or not 0 <= busy < math.inf:
            raise InputError("a row without a time in microseconds (busy_us)", where=f"{path}: {row['id']}")
        if not isinstance(row.get("family"), str):
            raise InputError("a row without a family", where=f"{path}: {row['id']}")
        measured.append(Measurement(id=row["id"], family=row["family"], seconds=busy * 1e-6, row=row))
    return Profile(header=header, measurements=tuple(measured))
