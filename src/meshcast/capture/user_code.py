"""The user's own Python: `path.py:function` and `package.module:function` brought in."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from meshcast.errors import InputError, MeshcastError, UsageError, nearest


def keep_off_accelerators() -> None:
    """Points JAX at the CPU, unless it is loaded or told otherwise: lowering asks for a default device, any will do."""
    if "jax" not in sys.modules:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")


def import_function(head: str, function: str, target: str) -> Callable[..., Any]:
    """The function that a target names.

    Args:
        head: A path ending in `.py`, or a dotted module name.
        function: The function's name in it.
        target: The whole target, for messages.
    """
    try:
        module = _from_path(Path(head)) if head.endswith(".py") else _from_name(head)
    except MeshcastError:
        raise
    except (Exception, SystemExit) as error:  # the user's module may raise anything while it is imported
        raise InputError(f"cannot be imported: {type(error).__name__}: {error}", where=head) from error
    found = getattr(module, function, None)
    if not callable(found):
        names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise UsageError(f"{head} has no function {function!r}", where=target, fix=nearest(function, names))
    return found  # type: ignore[no-any-return]


def _from_path(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError("no such file", where=str(path), fix="check the path")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError("is not a Python file", where=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # dataclasses and pickles look their module up
    _search(path.parent)
    spec.loader.exec_module(module)
    return module


def _from_name(name: str) -> ModuleType:
    _search(Path.cwd())
    return importlib.import_module(name)


def _search(folder: Path) -> None:
    """Lets the user's file import its neighbours."""
    text = str(folder.resolve())
    if text not in sys.path:
        sys.path.insert(0, text)
