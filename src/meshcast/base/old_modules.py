"""Modules under the names that they had before 0.2.0: found, with a `DeprecationWarning`, until 0.4.0.

The finder is asked last, for what no other finder knows, so that it costs nothing where nobody imports an old name.
"""

from __future__ import annotations

# Nothing heavy is imported: every command comes here.
import importlib
import sys
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any

PACKAGE = __name__.partition(".")[0]
MOVED = {
    "calibrate": "evidence.calibrate",
    "comparison": "evidence.comparison",
    "deadlocks": "jobs.program.deadlocks",
    "errors": "base.errors",
    "export": "traces",
    "export.formats": "traces",
    "measured": "evidence.profiler",
    "mesh": "base.mesh",
    "models": "zoo",
    "pipelined": "jobs.pipeline",
    "plans": "jobs.planned",
    "profiles": "estimate.measurements",
    "run": "jobs.program.run",
    "serving": "jobs.serving",
    "simulators": "estimate.outside",
    "stacks": "options.stacks",
    "systolic": "estimate.systolic",
    "traced": "jobs.traced",
    "units": "base.units",
    "validate": "evidence.validate",
}
# A function has the name now: a module of it would take the function's place.
TAKEN = {"capture": "programs"}


def new_name(old: str) -> str | None:
    """The name that a module has now, by the whole one that it had; None of what has not moved."""
    package, _, rest = old.partition(".")
    if package != PACKAGE:
        return None
    words = rest.split(".")
    for count in range(len(words), 0, -1):
        if (moved := MOVED.get(".".join(words[:count]))) is not None:
            return ".".join((PACKAGE, moved, *words[count:]))
    return None


class OldModules:
    """Finds modules by the names that they had; an entry of `sys.meta_path`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A module that stands for the moved one; None of what has not moved.

        Raises:
            ImportError: It has, and its old name is a function's now.
        """
        package, _, rest = name.partition(".")
        if package == PACKAGE and (home := TAKEN.get(rest.partition(".")[0])) is not None:
            raise ModuleNotFoundError(
                f"{PACKAGE}.{rest.partition('.')[0]} is a function since 0.2.0; its modules are in {PACKAGE}.{home}",
                name=name,
            )
        moved = new_name(name)
        if moved is None:
            return None
        return ModuleSpec(name, _Moved(moved), is_package=True)  # type: ignore[arg-type]  # a loader by its methods; as there may be old modules below it


class _Moved:
    """Loads a module that hands out what another one has."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """None: an ordinary module, which is filled below."""

    def exec_module(self, module: ModuleType) -> None:
        """Lets a module hand out the names of the moved one."""
        import warnings

        real = importlib.import_module(self._name)
        # The import system's own frames are passed over.
        warnings.warn(f"{module.__name__} is an old name: import {self._name}", DeprecationWarning, stacklevel=2)

        def load(name: str) -> Any:
            return getattr(real, name)

        module.__getattr__ = load  # type: ignore[method-assign]
        module.__dir__ = lambda: dir(real)  # type: ignore[method-assign]
        module.__doc__ = real.__doc__


def find_old_modules() -> None:
    """Has old names found, once."""
    if not any(isinstance(each, OldModules) for each in sys.meta_path):
        sys.meta_path.append(OldModules())
