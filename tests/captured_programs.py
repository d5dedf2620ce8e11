"""Programs of models that tests have captured and partitioned, on disk: one worker makes them for the other, a run for the next.

Tracing a model takes a fifth of a second, Shardy half of that, and reading bytecode some milliseconds. A program is known by the
function that made it with all of its arguments, and by whatever it is made of: the sources of the packages that capture and
partition, where they lie (debug locations name files), and the releases of Python, JAX and NumPy. So a change there makes
everything anew.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import platform
from collections.abc import Callable, Hashable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache, wraps
from importlib.metadata import version
from pathlib import Path
from typing import Any

from meshcast.programs import Program, mlir

SOURCES = Path(__file__).parents[1] / "src" / "meshcast"
# What capturing a model runs through: `zoo` has the models, `jobs/planned` makes parts and plans of them, and Shardy says which
# values a forward pass hands to the backward pass (tests/test_architecture.py has the table of who may import whom).
CAPTURING = ("base", "hardware", "zoo", "programs", "partition", "jobs/planned")
RELEASES = ("jax", "jaxlib", "numpy")


class UnknownKindError(TypeError):
    """An argument that nothing sure can be said of: what is captured with it is not kept."""


def described(argument: object) -> Hashable:
    """All of an argument as text and tuples: whatever differs in it differs there.

    Raises:
        UnknownKindError: It is neither plain data nor a dataclass of such.
    """
    if isinstance(argument, bytes):
        return "bytes", hashlib.sha256(argument).hexdigest()
    if argument is None or isinstance(argument, (str, int, float, Enum)):
        return type(argument).__qualname__, repr(argument)
    if isinstance(argument, (tuple, list)):
        return type(argument).__qualname__, tuple(map(described, argument))
    if isinstance(argument, dict):
        return "dict", tuple((described(key), described(value)) for key, value in argument.items())
    if is_dataclass(argument) and not isinstance(argument, type):
        values = tuple((each.name, described(getattr(argument, each.name))) for each in fields(argument))
        return type(argument).__module__, type(argument).__qualname__, values
    raise UnknownKindError(type(argument).__qualname__)


@lru_cache(maxsize=1)
def made_of() -> str:
    """A digest of what captured programs are made of beside arguments."""
    digest = hashlib.sha256(repr((platform.python_version(), *map(version, RELEASES), str(SOURCES))).encode())
    for package in CAPTURING:
        for path in sorted((SOURCES / package).rglob("*.py")):
            digest.update(f"{path}\0".encode() + path.read_bytes())
    return digest.hexdigest()


class CapturedPrograms:
    """A folder of captured programs."""

    def __init__(self, folder: Path) -> None:
        """Programs of other sources go: nothing asks for them again."""
        self._folder = folder / made_of()[:16]
        for earlier in folder.iterdir():
            if earlier != self._folder:
                _remove(earlier)
        self._folder.mkdir(exist_ok=True)

    def keeping(self, function: Callable[..., Any], tested_by: str = "") -> Callable[..., Any]:
        """The function, which makes only what the folder has not: a program, bytecode, or a tuple of such. Errors are not kept.

        Args:
            function: Of arguments by place.
            tested_by: Where the tests of the function itself begin: for them it makes everything.
        """

        @wraps(function)
        def captured(*args: Any) -> Any:
            if tested_by and os.environ.get("PYTEST_CURRENT_TEST", "").startswith(tested_by):
                return function(*args)
            try:
                asked = repr((function.__module__, function.__qualname__, described(args)))
            except UnknownKindError:
                return function(*args)
            path = self._folder / hashlib.sha256(asked.encode()).hexdigest()
            try:
                return _read(pickle.loads(path.read_bytes()))
            except FileNotFoundError:
                made = function(*args)
                draft = path.with_suffix(f".{os.getpid()}-{id(made)}")
                draft.write_bytes(pickle.dumps(_written(made)))
                draft.replace(path)
                return made

        return captured


def _written(made: Any) -> Any:
    """What is pickled: programs with their bytecode, and bytecode."""
    if isinstance(made, tuple):
        return tuple(map(_written, made))
    if isinstance(made, bytes):
        return made
    assert isinstance(made, Program), made
    return {**{each.name: getattr(made, each.name) for each in fields(Program)}, "module": made.bytecode}


def _read(kept: Any) -> Any:
    if isinstance(kept, tuple):
        return tuple(map(_read, kept))
    if isinstance(kept, bytes):
        return kept
    return Program(**{**kept, "module": mlir.parse_module(kept["module"], where=kept["source"])})


def _remove(folder: Path) -> None:
    """Removes a folder of files; another worker may be at it."""
    for path in _files(folder):
        path.unlink(missing_ok=True)
    if folder.is_dir():
        try:
            folder.rmdir()
        except OSError:
            return


def _files(folder: Path) -> Iterator[Path]:
    try:
        yield from folder.iterdir()
    except OSError:
        return
