"""Where a device's measured kernels come from: what is shipped, the silicon tables, or a file of the user's own.

Fitting takes seconds to a minute, so what was fitted is kept on disk under the hash of everything that made it: the
measurements, this package's code and parameters, the device's facts.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata, resources
from importlib.resources.abc import Traversable
from pathlib import Path

from meshcast.base import (
    VERSION,
    InputError,
    UnsupportedError,
    UsageError,
    cache_folder,
    file_name,
    how_to_install,
    keep,
    kept,
    unreadable,
)
from meshcast.estimate.measurements import silicon
from meshcast.estimate.measurements.profile import read_profile
from meshcast.estimate.profiled.interpolator import (
    Interpolator,
    InterpolatorRow,
    build_interpolator,
    load,
    reference_digest,
    shipped,
)
from meshcast.estimate.profiled.silicon import silicon_rows
from meshcast.hardware import WHAT_IF_MARK, Device, device_names, load_device

FOLDER = "profiled"
COLLECT = "python -m meshcast.evidence.calibrate.collect OUT.npz --on DEVICE --profile FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Measured kernels of a file, and what a user of them should know."""

    interpolator: Interpolator
    notes: tuple[str, ...] = ()


@functools.cache
def measured_kernels(device: Device) -> Interpolator | None:
    """The measured kernels of a device that need no file of the user's: the shipped ones, else the silicon tables."""
    if WHAT_IF_MARK in device.name:  # a few numbers are others: measured times move as the reference model says
        return measured_kernels(load_device(device.bases[0])) if device.bases[0] in device_names() else None
    found = shipped(device.name)
    if found is not None or device.name not in silicon.SYSTEMS or not silicon.installed():
        return found
    package = f"{silicon.DISTRIBUTION} {metadata.version(silicon.DISTRIBUTION)}"
    try:
        return _fitted(package.encode(), device, lambda: silicon_rows(device), package)
    except UnsupportedError:  # the package has nothing of this device, or not all tables
        return None


def why_not_measured(device: Device) -> UnsupportedError:
    """What to say where nothing was measured on a device, and what to do about it."""
    fixes = ["give a profile of it with --profile FILE (meshcast calibrate --profile measures one)"]
    if device.name in silicon.SYSTEMS and not silicon.installed():
        fixes.append(f"or install tables of it: {how_to_install(silicon.EXTRA)}")
    fixes.append("or use --fidelity auto")
    return UnsupportedError(
        f"nothing was measured on {device.name}: there is nothing to interpolate between",
        where="--fidelity profiled",
        fix=", ".join(fixes),
    )


def given_kernels(path: Path, device: Device) -> Given:
    """The measured kernels of a file: what the collector wrote, or a profile, which is fitted when it is first used.

    Args:
        path: `NAME.npz` or `NAME.profile.jsonl[.gz]`.
        device: What to predict for: the device that was measured, or one whose file starts from it.

    Raises:
        InputError: It cannot be read, or is neither of both.
        UsageError: It was measured on another device.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error, fix="give a .npz or .profile.jsonl.gz") from error
    return _given(path, data, device)


@functools.lru_cache(maxsize=8)
def _given(path: Path, data: bytes, device: Device) -> Given:
    notes: list[str] = []
    if data[:2] == b"PK":  # a zip archive, which .npz is
        found = load(data, str(path))
        measured = _measured_on(found.device, device, path, notes)
        if measured is not None and found.reference != reference_digest(measured):
            notes.append(f"{path.name} is relative to another version of the reference model: collect it again")
        return Given(interpolator=found, notes=tuple(notes))
    profile = read_profile(path)
    name = profile.header.device
    measured = _measured_on(name, device, path, notes)
    if measured is None:
        raise UsageError(
            f"{name} is a file that {device.name} starts from: the profile must be fitted on it first",
            where=str(path),
            fix=COLLECT,
        )

    def rows() -> list[InterpolatorRow]:  # read only where they were not fitted before
        try:
            return [InterpolatorRow(kernel=k, seconds=s, program=probe) for k, s, probe in profile.timed_kernels()]
        except InputError as error:
            raise InputError(error.message, where=error.where or str(path), fix=error.fix) from error

    fitted = _fitted(hashlib.sha256(data).digest(), measured, rows, path.name)
    return Given(interpolator=fitted, notes=tuple(notes))


def _measured_on(name: str, device: Device, path: Path, notes: list[str]) -> Device | None:
    """The device that was measured; None where it is one that only its own file knows.

    Raises:
        UsageError: It is neither the device asked for nor one that this starts from.
    """
    if name == device.name:
        return device
    if name not in _starts_from(device):
        raise UsageError(
            f"the kernels of this profile were measured on {name}, not on {device.name}",
            where=str(path),
            fix=f"predict --on {name}, or on its device file; give {device.name} a profile of its own",
        )
    notes.append(
        f"kernels were measured on {name}, which {device.name} starts from: carried over by the reference model"
    )
    return load_device(name) if name in device_names() else None


def _starts_from(device: Device) -> Iterator[str]:
    """What a device of the user's own was derived from, down to the catalogue's device, whose own base is another product."""
    below = iter(device.bases)
    name: str | None = device.name
    while name is not None and name not in device_names():
        name = next(below, None)
        if name is not None:
            yield name


def _fitted(content: bytes, device: Device, rows: Callable[[], list[InterpolatorRow]], source: str) -> Interpolator:
    """Families fitted to rows, or what an earlier run made of the same."""
    made_from = (VERSION.encode(), code_digest(), reference_digest(device).encode(), content)
    key = hashlib.sha256(b"\0".join(made_from)).hexdigest()
    path = cache_folder(FOLDER) / f"{file_name(device.name)}-{key[:24]}.npz"
    data = kept(path)
    if data is not None:
        try:
            return load(data, str(path))
        except InputError:  # damaged: as if it were absent
            pass
    found = build_interpolator(rows(), device, (source,))
    keep(path, found.to_bytes())
    return found


@functools.cache
def code_digest() -> bytes:
    """Changes whenever the models do that measurements are put in relation to, their parameters, or the way that they are."""
    digest = hashlib.sha256()
    for file in digested_files():
        digest.update(file.read_bytes())
    return digest.digest()


def digested_files() -> Iterator[Traversable]:
    """Code of the models and of what makes kernels and families, and the models' parameters."""
    estimate = resources.files("meshcast.estimate")
    folders = (*(estimate / name for name in ("profiled", "gpu", "tpu", "measurements", "data")), estimate)
    lower = resources.files("meshcast.lower")
    rooms = sorted((each for each in lower.iterdir() if each.is_dir()), key=lambda folder: folder.name)
    for folder in (*folders, lower, *rooms):
        found = (file for file in folder.iterdir() if file.name.endswith((".py", ".toml")))
        yield from sorted(found, key=lambda file: file.name)
