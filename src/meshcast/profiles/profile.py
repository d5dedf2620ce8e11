"""A profile, read: what was measured of each probe beside the kernels that we make of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshcast.errors import InputError
from meshcast.lower.kernel import Kernel
from meshcast.profiles.file import Header, read
from meshcast.profiles.kernels import kernel_from_json


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
        return tuple((kernel_from_json(kernel), count) for kernel, count in lowered)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A device's measurements; probes that did not run are not among them."""

    header: Header
    measurements: tuple[Measurement, ...]

    def timed_kernels(self) -> list[tuple[Kernel, float, str]]:
        """Every kernel that a time was put beside, with its seconds and the probe it was measured in.

        Raises:
            InputError: No row has any: the profile was lowered by an older version, or not at all.
        """
        found = [
            (kernel_from_json(kernel), us * 1e-6, measurement.id)
            for measurement in self.measurements
            for kernel, us in measurement.row.get("paired", ())
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
    header, rows = read(path)
    measured = []
    for row in rows:
        if "error" in row:
            continue
        try:
            seconds = float(row["busy_us"]) * 1e-6
        except (KeyError, TypeError, ValueError) as error:
            raise InputError("a row without a time in microseconds (busy_us)", where=f"{path}: {row['id']}") from error
        measured.append(Measurement(id=row["id"], family=row["family"], seconds=seconds, row=row))
    return Profile(header=header, measurements=tuple(measured))
