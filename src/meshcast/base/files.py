"""Files that are there whole or not at all, several of them together, and packed ones read.

They are written into a folder beside their places, and put there when all of them are done. Whatever fails or interrupts it, the
folder is taken away, and what stood in the places before stands there again.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from meshcast.base.errors import InputError, MeshcastError, OutputError, UsageError
from meshcast.base.interruption import Hold, held, taken_away
from meshcast.base.units import format_bytes

COMPRESSION = 6  # of gzip: beyond, files hardly shrink
GZIP_MAGIC = b"\x1f\x8b"
LARGEST_UNPACKED = 4 << 30  # bytes; what is larger does not stay in memory beside what is made of it
LARGEST_TEXT = (
    1 << 30
)  # bytes of a program or a table of measurements, of which many are read, or several times as much is made
FULL = (errno.ENOSPC, errno.EDQUOT)
NO_NAMES = (errno.ENAMETOOLONG, errno.ELOOP)
_SHOWN = 60  # characters of a name that is too long
LONGEST_NAME = 100  # characters; file systems take 255 bytes, endings included
ELSEWHERE = "choose another place"  # what helps where nothing can be written


def check_place(path: Path, *, where: str) -> None:
    """Refuses a place that no file can be written to, before the work is done.

    Args:
        path: The place.
        where: What named it.

    Raises:
        UsageError: The folder takes no files, or the name is taken by something that is no file.
    """
    if str(path) == "-":
        raise UsageError("the output goes to files, not to the standard output", where=where, fix="name a file")
    if path.is_dir():
        raise UsageError("a folder of this name is there", where=where, fix="name a file")
    if path.exists() and not path.is_file():
        raise UsageError("a device or a pipe of this name is there, no file", where=where, fix="name a file")
    check_folder(_followed(path).parent, where=where)


def _followed(place: Path) -> Path:
    """Where a file at a place really is: at the end of links, whether it is there yet or not. Folders stay as they are named."""
    return Path(os.path.realpath(place)) if place.is_symlink() else place


def check_folder(folder: Path, *, where: str) -> None:
    """Refuses a folder in which nothing can be made; one that is not there yet counts as the next above it that is.

    Raises:
        UsageError: It cannot be written to, or is none.
    """
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not there.is_dir():
        raise UsageError(f"{there} is no folder", where=where, fix=ELSEWHERE)
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"{there} cannot be written to", where=where, fix=f"{ELSEWHERE}, or change its rights")


def check_prefix(prefix: Path, *, where: str) -> None:
    """Refuses what names of files cannot begin with, and a folder in which nothing can be made.

    Raises:
        UsageError: It is one of these.
    """
    if prefix.name in ("", ".."):
        raise UsageError(
            "the prefix is a folder and has no name", where=where, fix=f"name the files in it: {prefix / 'step'}"
        )
    check_folder(prefix.parent, where=where)


def not_written(error: OSError, path: Path, fix: str = ELSEWHERE) -> MeshcastError:
    """The error of a file that could not be written."""
    what = f"cannot be written: {error.strerror or error}"
    if error.errno in FULL:
        return OutputError(what, where=str(path), fix=f"make room on the disk, or {fix}")
    return UsageError(what, where=str(path), fix=fix)


@contextmanager
def names_taken() -> Iterator[None]:
    """Inside, a name that the file system does not take is the user's mistake, wherever it is looked up.

    Raises:
        InputError: Such a name was looked up.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in NO_NAMES:
            raise
        name = str(error.filename or "")
        shown = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}... ({len(name)} characters)"
        raise InputError(
            f"no file can have this name: {error.strerror}", where=shown or None, fix="check the name"
        ) from None


@dataclass(slots=True, kw_only=True)
class Staged:
    """Files under way.

    Attributes:
        folder: Where they are written.
    """

    folder: Path
    _places: dict[Path, Path] = field(default_factory=dict)  # where they are to be, by where they are
    _leaving: list[Path] = field(default_factory=list)

    def path(self, place: Path) -> Path:
        """The temporary path of a file that is to end up at `place`; files are moved in the order of asking."""
        place = _followed(place)
        # Names stay, as readers go by endings; numbers keep those apart that are equal in several folders.
        return self._places.setdefault(place, self.folder / f"{len(self._places)}-{place.name}")

    @contextmanager
    def open(self, place: Path) -> Iterator[IO[bytes]]:
        """The temporary file for a place, open for writing, compressed where the place's name ends in `.gz`."""
        with self.path(place).open("wb") as raw:
            if place.suffix == ".gz":
                # No name and no time inside: the same trace gives the same bytes.
                with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=COMPRESSION, mtime=0) as packed:
                    yield cast(IO[bytes], packed)
            else:
                yield raw

    def meant(self, name: str | None) -> Path | None:
        """The place of a file under way; other files as they are."""
        if name is None or Path(name) == self.folder:
            return None
        return next((place for place, path in self._places.items() if path == Path(name)), Path(name))

    def without(self, place: Path) -> None:
        """Has a file taken away before any is put in place; of a link, what it leads to."""
        self._leaving.append(_followed(place))

    def put(self, hold: Hold) -> None:
        """Moves all of them to their places; those that were there come back if that fails or is interrupted."""
        before = self.folder / "before"  # no name of a file's: they begin with a number
        before.mkdir()
        done: list[tuple[Path, Path | None]] = []
        made = [each for each in {place.parent: None for place in self._places} if not each.exists()]
        try:
            for each in made:
                each.mkdir()
            for place in self._leaving:
                done += _moved_away(place, before / str(len(done)))
            *first, last = self._places.items()
            for place, whole in first:
                done += _moved_away(place, before / str(len(done)))
                os.rename(whole, place)
                done.append((place, None))
                hold.check()
            hold.check()
            os.replace(last[1], last[0])  # a single file is never away
        except BaseException:
            for place, kept in reversed(done):
                if kept is not None:
                    os.rename(kept, place)
                else:
                    place.unlink()
            for each in made:
                with contextlib.suppress(OSError):
                    each.rmdir()
            raise


def _moved_away(place: Path, kept: Path) -> list[tuple[Path, Path | None]]:
    if place.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(place))
    try:
        os.rename(place, kept)
    except FileNotFoundError:
        return []
    return [(place, kept)]


@contextmanager
def whole_files(place: Path, *, fix: str = ELSEWHERE) -> Iterator[Staged]:
    """Files that are put in their places together when all are written; nothing is left of them if that fails.

    Args:
        place: One of them, or what their names begin with: they are in one folder, which is made where it is not there,
            or in folders inside it.
        fix: What to change where they cannot be written.

    Raises:
        UsageError: They cannot be written.
        OutputError: The disk is full.
    """
    place = _followed(place)  # what is renamed stays on one file system
    folder = place.parent
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    staged = Staged(folder=folder / f".{place.name}.{secrets.token_hex(4)}.part")

    def nothing_left() -> None:
        shutil.rmtree(staged.folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # not there, or somebody else has put something in
            for each in made:
                each.rmdir()

    whole = False
    with taken_away(nothing_left):
        try:
            for each in reversed(made):
                each.mkdir(exist_ok=True)
            staged.folder.mkdir()
            yield staged
            with held() as hold:
                staged.put(hold)
                shutil.rmtree(staged.folder, ignore_errors=True)
                whole = True
                hold.too_late()
        except OSError as error:
            raise not_written(error, staged.meant(error.filename) or place, fix) from None
        finally:
            if not whole:
                with held():
                    nothing_left()


@contextmanager
def whole_file(path: Path, *, fix: str = ELSEWHERE) -> Iterator[IO[bytes]]:
    """A file to write to, compressed if its name ends in `.gz`; nothing is left of it if that fails.

    Raises:
        UsageError: It cannot be written.
        OutputError: The disk is full.
    """
    with whole_files(path, fix=fix) as staged, staged.open(path) as out:
        yield out


def json_value(content: str | bytes, *, where: str) -> Any:
    """The value of a JSON document.

    Raises:
        InputError: It is none; also one that is nested too deeply, or has a number of thousands of digits.
    """
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        # Python's messages end where a place is to follow ("... starting at"), which `where` has.
        said = re.sub(r"( starting)? at$|:? $", "", error.msg)
        cut = error.pos >= len(error.doc.rstrip()) or said.startswith("Unterminated")
        raise InputError(
            f"is not JSON: {said}{', the file may have been cut off' if cut else ''}",
            where=f"{where}:{error.lineno}:{error.colno}",
            fix="copy it again, or have it written again",
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON that can be read: {error}", where=where, fix="have it written again") from None


def write_whole(path: Path, content: str | bytes, *, fix: str = ELSEWHERE) -> None:
    """Writes a file as a whole, with the rights of the one in its place; through links, and to pipes and devices directly.

    Raises:
        UsageError: It cannot be written.
        OutputError: The disk is full.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        special = (path.exists() and not path.is_file() and not path.is_dir()) or path.is_relative_to("/dev")
        if special:
            path.write_bytes(data)
            return
    except OSError as error:
        raise not_written(error, path, fix) from None
    with whole_files(path, fix=fix) as staged:
        whole = staged.path(path)
        whole.write_bytes(data)
        with contextlib.suppress(FileNotFoundError):
            shutil.copymode(path, whole)  # of the file that a link leads to


def append_whole(path: Path, data: bytes) -> None:
    """Adds to a file, and sees it to the disk; where that fails the file is as long as it was.

    Raises:
        UsageError: It cannot be written.
        OutputError: The disk is full.
    """
    try:
        with path.open("ab", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            try:
                while data:
                    data = data[file.write(data) :]
                os.fsync(file.fileno())
            except BaseException:
                file.truncate(size)
                raise
    except OSError as error:
        raise not_written(error, path) from None


def file_name(text: str) -> str:
    """A name that stays in its folder and fits any file system: what may not be in one replaced, long ones cut."""
    name = re.sub(r"[^\w.+-]+", "-", text, flags=re.ASCII).strip("-.")
    if len(name) > LONGEST_NAME:
        name = f"{name[:LONGEST_NAME]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return name or "unnamed"


def unpacked(content: bytes, *, where: str, largest: int = LARGEST_UNPACKED) -> bytes:
    """The content of a file, decompressed where it is gzip.

    Raises:
        InputError: It is cut off or damaged, or unpacks to more than `largest` bytes.
    """
    if not content.startswith(GZIP_MAGIC):
        return content
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            found = packed.read(largest + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"gzip that is cut off or damaged: {error}", where=where, fix="copy it again") from None
    if len(found) > largest:
        raise InputError(
            f"unpacks to more than {format_bytes(largest)}",
            where=where,
            fix="give a smaller file; of a trace, record less: fewer steps, or one device",
        )
    return found
