"""Where in the user's own files an exception came from."""

from __future__ import annotations

import functools
import linecache
import re
import sysconfig
import traceback
from importlib import metadata
from pathlib import Path
from types import FrameType

from meshcast.base import InputError, MeshcastError, UnsupportedError, how_to_install

_FRAMEWORKS = ("torch", "torchax", "jax", "jaxlib", "meshcast")
_LONGEST = 400  # characters of another's message
_INSTALLED = ("site-packages", "dist-packages")


def user_line(error: BaseException) -> str | None:
    """The innermost `file:line (code)` of the error's way that lies outside the libraries."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return _shown(error.filename, error.lineno, error.text or "")
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not in_library(frame.filename):
            return _shown(frame.filename, frame.lineno or 0, frame.line or "")
    return None


def called_by_user(error: BaseException) -> str | None:
    """The library function that the innermost line of the user's own called, as `module.function`."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    last = max((i for i, frame in enumerate(frames) if not in_library(frame.f_code.co_filename)), default=None)
    if last is None or last + 1 >= len(frames):
        return None
    return _function_name(frames[last + 1])


def _function_name(frame: FrameType) -> str:
    home = str(frame.f_globals.get("__name__", ""))
    return f"{home}.{frame.f_code.co_qualname}" if home else frame.f_code.co_qualname


def in_library(filename: str) -> bool:
    """Whether a file belongs to Python, to a framework that runs the user's code, or to what these depend on.

    Other installed packages count as the user's: a model may come from one.
    """
    if filename.startswith("<"):
        return True
    parts = Path(filename).parts
    for folder in (*_INSTALLED, "src"):
        if folder in parts:
            after = parts[len(parts) - parts[::-1].index(folder) :]
            if after and after[0].removesuffix(".py") in (_libraries() if folder in _INSTALLED else _FRAMEWORKS):
                return True
    return not set(_INSTALLED) & set(parts) and any(filename.startswith(f"{each}/") for each in _standard_library())


@functools.cache
def _libraries() -> frozenset[str]:
    """Import names of the frameworks and of what they require, as their metadata say."""
    found = set(_FRAMEWORKS)
    for name in _FRAMEWORKS:
        try:
            required = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        found.update(re.split(r"[^\w.-]", each, maxsplit=1)[0].replace("-", "_").lower() for each in required)
    return frozenset(found)


@functools.cache
def _standard_library() -> tuple[str, ...]:
    return tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), str(Path(traceback.__file__).parent)})


def _shown(filename: str, line: int, code: str) -> str:
    code = (code or linecache.getline(filename, line)).strip()
    return f"{filename}:{line}" + (f" ({code})" if code else "")


def raised(error: BaseException, what: str, *, where: str) -> MeshcastError:
    """The error for an exception of the user's own code.

    Args:
        error: What was raised.
        what: What could not be done: `cannot be imported`, `f() raised`.
        where: What to name where no line of the user's is on the error's way.
    """
    first = str(error).strip().partition("\n")[0][:_LONGEST]
    said = f"{what}: {type(error).__name__}: {first}"
    place = user_line(error) or where
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in ("torch", "torchax"):
        from meshcast.programs.pytorch.library import EXTRA

        return UnsupportedError(said, where=place, fix=how_to_install(EXTRA))
    return InputError(said, where=place)
