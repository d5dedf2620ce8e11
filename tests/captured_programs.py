"""Programs of models that tests have captured and partitioned, on disk: one worker makes them for the other, a run for the next.

Tracing a model takes a fifth of a second, Shardy half of that, and reading bytecode some milliseconds. A program is known by the
function that made it with all of its arguments, and by whatever it is made of: the sources of the packages that capture and
partition, and the releases of Python, JAX and NumPy. So a change there makes everything anew. Debug locations have the names of
ops, but no files and lines: nobody reads them of a model, and they would tell one clone from another.

`tests/captured_archive.py` brings the programs of a whole run along with the sources.
"""

from __future__ import annotations

import ast
import hashlib
import os
import pickle
import platform
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache, wraps
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

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


def full_name(function: Callable[..., Any]) -> str:
    """A function's name with its module."""
    return f"{function.__module__}.{function.__qualname__}"


def name_of(function: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """The name of the file that has what a function makes of arguments.

    Raises:
        UnknownKindError: Nothing sure can be said of an argument.
    """
    asked = repr((full_name(function), described(args)))
    return hashlib.sha256(asked.encode()).hexdigest()


@lru_cache(maxsize=1)
def made_of(known: Path | None = None) -> str:
    """A digest of what captured programs are made of beside arguments: what the sources say, not how they explain it.

    Args:
        known: A folder that keeps it for sources that are the same to the byte: finding it out takes a second.
    """
    releases = (platform.machine(), *platform.python_version_tuple()[:2], *map(version, RELEASES))
    paths = [path for package in CAPTURING for path in sorted((SOURCES / package).rglob("*.py"))]
    sources = {path.relative_to(SOURCES).as_posix(): path.read_bytes() for path in paths}
    to_the_byte = hashlib.sha256(repr((releases, Path(__file__).read_bytes(), sources)).encode()).hexdigest()
    if known is not None and (known / to_the_byte).exists():
        return (known / to_the_byte).read_text()
    said = [(name, meaning(source.decode())) for name, source in sources.items()]
    digest = hashlib.sha256(repr((releases, said)).encode()).hexdigest()[:16]
    if known is not None:
        for earlier in known.iterdir():
            earlier.unlink(missing_ok=True)
        draft = known / f"{to_the_byte}.{os.getpid()}"
        draft.write_text(digest)
        draft.replace(known / to_the_byte)
    return digest


def meaning(source: str) -> str:
    """A module without its comments, docstrings and lines: what of it can change a captured program."""
    module = ast.parse(source)
    for node in ast.walk(module):
        match node:
            case ast.Module(body=body) | ast.ClassDef(body=body) | ast.FunctionDef(body=body):
                if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
                    body[0].value.value = None
    return ast.dump(module)


class Kept(NamedTuple):
    """What a file of the folder holds."""

    function: str  # that made it
    args: bytes | None  # its pickled arguments, where they are no program themselves
    made: Any  # as `written` has it


USUAL_FRAMES = 10  # of JAX, in a debug location
_frames = USUAL_FRAMES


def without_tracebacks() -> None:
    """Has this process capture programs with the names of ops in their debug locations, and nothing else."""
    _limit_frames(0)


@contextmanager
def with_tracebacks() -> Iterator[None]:
    """Has programs captured as users have them, with the lines that their ops come from; none of them is kept or was."""
    _limit_frames(USUAL_FRAMES)
    try:
        yield
    finally:
        _limit_frames(0)


def _limit_frames(most: int) -> None:
    import jax

    global _frames
    _frames = most
    jax.config.update("jax_traceback_in_locations_limit", most)


class CapturedPrograms:
    """A folder of captured programs."""

    def __init__(self, folder: Path, made: str) -> None:
        """Programs of other sources go: nothing asks for them again.

        Args:
            folder: Of programs of all sources.
            made: The digest of these sources (`made_of`).
        """
        self.folder = folder / made
        for earlier in folder.iterdir():
            if earlier != self.folder:
                _remove(earlier)
        self.folder.mkdir(exist_ok=True)

    def keeping(self, function: Callable[..., Any], tested_by: str = "") -> Callable[..., Any]:
        """The function, which makes only what the folder has not: a program, bytecode, or a tuple of such. Errors are not kept.

        Args:
            function: Of arguments by place.
            tested_by: Where the tests of the function itself begin: for them it makes everything.
        """

        @wraps(function)
        def captured(*args: Any) -> Any:
            if _frames:
                return function(*args)
            if tested_by and os.environ.get("PYTEST_CURRENT_TEST", "").startswith(tested_by):
                return function(*args)
            try:
                path = self.folder / name_of(function, args)
            except UnknownKindError:
                return function(*args)
            try:
                return _read(pickle.loads(path.read_bytes()).made)
            except FileNotFoundError:
                made = function(*args)
                kept = Kept(full_name(function), _asked_again(args), written(made))
                draft = path.with_suffix(f".{os.getpid()}-{id(made)}")
                draft.write_bytes(pickle.dumps(kept))
                draft.replace(path)
                return made

        return captured


def written(made: Any) -> Any:
    """What is pickled: programs with their bytecode, and bytecode."""
    if isinstance(made, tuple):
        return tuple(map(written, made))
    if isinstance(made, bytes):
        return made
    assert isinstance(made, Program), made
    return {**{each.name: getattr(made, each.name) for each in fields(Program)}, "module": made.bytecode}


def _asked_again(args: tuple[Any, ...]) -> bytes | None:
    return None if any(isinstance(each, bytes) for each in args) else pickle.dumps(args)


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
