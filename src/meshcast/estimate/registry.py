"""Estimators by name, found through entry points: built-ins take the same way in as outsiders."""

from __future__ import annotations

import functools
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from meshcast.base import MeshcastError, UnsupportedError, UsageError, nearest
from meshcast.estimate.estimator import Estimator

GROUP = "meshcast.estimators"


@functools.cache
def _entries() -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=GROUP):
        if entry.name in found and found[entry.name].value != entry.value:
            raise UsageError(
                f"two packages register the estimator {entry.name!r}: {found[entry.name].value} and {entry.value}",
                fix="uninstall one of them",
            )
        found[entry.name] = entry
    return found


def estimator_names() -> list[str]:
    """Names of all registered estimators; nothing is imported."""
    return sorted(_entries())


def load_estimator(name: str) -> Estimator:
    """A registered estimator; of built-ins always the same one, so that what it has answered can be kept."""
    entries = _entries()
    if name not in entries:
        raise UsageError(f"no estimator {name!r} is installed", where="--fidelity", fix=nearest(name, entries))
    try:
        return _built_in(entries[name]) if _is_own(entries[name]) else cast(Estimator, entries[name].load()())
    except MeshcastError:
        raise
    except ImportError as error:
        raise UsageError(f"the estimator {name!r} cannot be imported: {error}", fix="see meshcast doctor") from error
    except Exception as error:
        if _is_own(entries[name]):
            raise  # a bug of ours
        raise UnsupportedError(
            f"the plug-in {name!r} ({entries[name].value}) raised {type(error).__name__}: {error}, being made",
            where=name, fix="choose another fidelity, or mend the plug-in",
        ) from error  # fmt: skip


@functools.cache
def _built_in(entry: EntryPoint) -> Estimator:
    return cast(Estimator, entry.load()())


def _is_own(entry: EntryPoint) -> bool:
    return entry.module.partition(".")[0] == __name__.partition(".")[0]
