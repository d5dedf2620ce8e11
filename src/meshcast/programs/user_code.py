"""The user's own Python: `path.py:function` and `package.module:function` brought in."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

from meshcast.base import InputError, MeshcastError, UsageError, nearest
from meshcast.programs.user_lines import raised

_INSTALLED = ("site-packages", "dist-packages")


def keep_off_accelerators() -> None:
    """Points JAX at the CPU, unless it is loaded or told otherwise: lowering asks for a default device, any will do."""
    if "jax" not in sys.modules:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """While the user's code runs: what it, or a process it starts, writes to stdout goes to stderr, at any level."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if sys.__stdout__ is not None:
            sys.__stdout__.flush()
        os.dup2(saved, 1)
        os.close(saved)


@contextmanager
def neighbours_importable(head: str) -> Iterator[None]:
    """While a target's code is imported, called and traced: its folder comes first on the search path.

    Afterwards the search path is what it was, and modules that came from the target's folders are forgotten: the next
    target may have others of the same names. What is installed stays, since jax cannot be imported twice.

    Args:
        head: A path ending in `.py`, or a dotted module name, which the current folder is searched for.
    """
    path, modules = list(sys.path), set(sys.modules)
    folder = (Path(head).parent if _is_path(head) else Path.cwd()).resolve()
    importlib.invalidate_caches()
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        theirs = {each for each in (folder, *_added_folders(path)) if each.name not in _INSTALLED}
        sys.path[:] = path
        for name in [name for name in sys.modules if name not in modules]:
            home = _home(name)
            if home in theirs and name.partition(".")[0] != "meshcast":
                del sys.modules[name]


def import_function(head: str, function: str, target: str) -> Callable[..., Any]:
    """The function that a target names.

    Args:
        head: A path ending in `.py`, or a dotted module name.
        function: The function's name in it.
        target: The whole target, for messages.
    """
    try:
        module = _from_path(Path(head)) if _is_path(head) else importlib.import_module(head)
    except MeshcastError:
        raise
    except (Exception, SystemExit) as error:  # the user's module may raise anything while it is imported
        raise raised(error, "cannot be imported", where=head) from error
    found = getattr(module, function, None)
    if not callable(found):
        names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise UsageError(f"{head} has no function {function!r}", where=target, fix=nearest(function, names))
    return found  # type: ignore[no-any-return]


def _is_path(head: str) -> bool:
    return head.endswith(".py")


def _from_path(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError("no such file", where=str(path), fix="check the path")
    # A name of its own: dataclasses and pickles look their module up, and must not find another `json` or `step`.
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
    spec = importlib.util.spec_from_file_location(f"{path.stem}_{digest}", path)
    if spec is None or spec.loader is None:
        raise InputError("is not a Python file", where=str(path), fix="name a .py file, as path.py:function")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.modules.setdefault(path.stem, module)  # for neighbours that import the file by its own name
    spec.loader.exec_module(module)
    return module


def _added_folders(before: Sequence[str]) -> Iterator[Path]:
    """What the user's code put on the search path itself."""
    known = set(map(_resolved, before))
    return (folder for folder in map(_resolved, sys.path) if folder not in known)


def _resolved(entry: str) -> Path:
    return Path(entry or ".").resolve()  # the empty entry is the current folder


def _home(name: str) -> Path | None:
    """The folder on the search path that a module's top-level package was found in."""
    module = sys.modules.get(name.partition(".")[0]) or sys.modules[name]
    if getattr(module, "__path__", None):
        return Path(next(iter(module.__path__))).resolve().parent
    file = getattr(module, "__file__", None)
    return Path(file).resolve().parent if file else None
