"""Every error a user can cause, in one tree: what happened, where, the numbers, what to change.

Two families only. A `MeshcastError` is the user's own outcome (bad input, unknown device, does not fit) and is
printed without a traceback. Anything else that escapes is a bug of ours and exits with code 1.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, ClassVar

_MOST_NAMES = 40  # that a message lists one by one
_SHORT = 4  # letters of a name


class MeshcastError(Exception):
    """An outcome the user can act on; `exit_code` follows the command line's contract."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, where: str | None = None, fix: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        remedy = f"\n  fix: {self.fix}" if self.fix else ""
        return f"{place}{self.message}{remedy}"

    def to_json(self) -> dict[str, Any]:
        """The contract's error object."""
        return {"error": {"code": self.code, "message": self.message, "where": self.where, "fix": self.fix}}

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> MeshcastError:
        """The error of such an object, as another process of ours wrote it."""
        said = found["error"]
        kinds = {kind.code: kind for kind in (UsageError, InputError, OutputError, InfeasibleError, UnsupportedError)}
        return kinds[said["code"]](said["message"], where=said["where"], fix=said["fix"])


class BugError(MeshcastError):
    """A failure of ours, reported for one target so that the others are still answered."""

    code = "bug"
    exit_code = 1


class UsageError(MeshcastError):
    """The command or call itself is wrong: a flag, a name, a mesh that does not match."""

    code = "usage"
    exit_code = 2


class InputError(MeshcastError):
    """A file or program cannot be read: truncated, wrong dialect version, not a program at all."""

    code = "unreadable-input"
    exit_code = 2


class OutputError(MeshcastError):
    """What was worked out cannot be written: the disk is full, or whatever stands behind the standard output takes no more."""

    code = "unwritable-output"
    exit_code = 2


class InfeasibleError(MeshcastError):
    """The program cannot run as asked: it does not fit, or the mesh does not divide it."""

    code = "infeasible"
    exit_code = 3


class UndividedError(InfeasibleError):
    """Axes of a mesh do not divide a count.

    Attributes:
        what: What is counted.
        count: How many there are.
        split: The axes and their sizes.
    """

    def __init__(self, what: str, count: int, split: Mapping[str, int], *, fix: str, where: str | None = None) -> None:
        said = " x ".join(f"{name}={size}" for name, size in split.items())
        super().__init__(f"{what}: {count} is not divisible by {said}", where=where, fix=fix)
        self.what = what
        self.count = count
        self.split = dict(split)


def unreadable(path: object, error: OSError | ValueError, *, fix: str = "check the path") -> InputError:
    """What to raise for a file that the system does not give, or that is no text (a `UnicodeDecodeError` is a `ValueError`)."""
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return InputError(f"cannot be read: {said}", where=str(path), fix=fix)


class UnsupportedError(MeshcastError):
    """An op, a dtype, a custom call or a device that no model here covers."""

    code = "unsupported"
    exit_code = 4


def nearest(name: str, known: Iterable[str], *, listed_by: str | None = None) -> str:
    """A hint naming the closest known spelling, or the known names when nothing is close.

    Capitals, and whether parts are joined by a dash, an underscore or a space, make no distance.

    Args:
        name: What was written.
        known: What could have been.
        listed_by: The command that lists all names, which is named in place of more names than anybody reads.
    """
    candidates = {_joined(each): each for each in sorted(known, reverse=True)}
    cutoff = 0.5 if len(name) < _SHORT else 0.6  # one wrong letter of two
    close = difflib.get_close_matches(_joined(name), candidates, n=1, cutoff=cutoff)
    if close:
        return f"did you mean {candidates[close[0]]!r}?"
    if listed_by is not None and len(candidates) > _MOST_NAMES:
        return f"`{listed_by}` lists all {len(candidates)}"
    return "known: " + ", ".join(sorted(candidates.values()))


def _joined(name: str) -> str:
    return name.lower().replace("_", "-").replace(" ", "-")


def expect(value: object, kinds: type | tuple[type, ...], what: str, *, where: str, fix: str | None = None) -> None:
    """Refuses an argument of another type than the words `what` say, and texts that no file system takes.

    Raises:
        UsageError: It is one of these.
    """
    if not isinstance(value, kinds):
        raise UsageError(
            f"{where} is {what}, not {value!r} (a value of type {type(value).__name__})", where=where, fix=fix
        )
    refuse_nul(value, where=where)


def refuse_nul(value: object, *, where: str) -> None:
    """Refuses texts and paths with a NUL character, which are looked up as files and which no file system takes.

    Raises:
        UsageError: There is one in it.
    """
    if isinstance(value, (str, PurePath)) and "\0" in str(value):
        raise UsageError(f"{where} has a NUL character in it: {str(value)!r}", where=where, fix="leave it out")
