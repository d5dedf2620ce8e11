"""A profile's file: a header line, then one JSON object a probe; plain while it grows, packed when done.

`NAME.profile.jsonl.gz` is the result; `NAME.profile.jsonl` grows beside it while measuring, a batch at a time, so that
an interrupted run is taken up where it ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from meshcast.base import (
    InputError,
    UsageError,
    append_whole,
    json_value,
    unpacked,
    unreadable,
    whole_file,
    write_whole,
)

SCHEMA = "meshcast.profile/1"
ProfileRow = dict[str, Any]
_SAME = ("suite", "device", "kind", "backend", "jax", "jaxlib")  # what rows of one file must agree in


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileHeader:
    """The header of a profile: the device that was measured, and the software that measured it."""

    device: str  # a name of the catalogue where it has one, else what the backend calls it
    kind: str  # what the backend calls it
    backend: str
    suite: int
    jax: str
    jaxlib: str
    platform: str = ""  # the backend's own version
    driver: str = ""  # of an NVIDIA card, where the system says it
    meshcast: str = ""
    date: str = ""
    clocks: str = "burst"  # short runs with pauses between them
    lowered_by: str = ""  # the version of meshcast that put our kernels beside the rows; none if empty
    limits: Mapping[str, float] = field(default_factory=dict)  # what the backend does: flops_per_s, bytes_per_s, ...

    def to_json(self) -> ProfileRow:
        """The file's first line."""
        return {"schema": SCHEMA, **asdict(self)}


def header_from_json(value: Any, where: str) -> ProfileHeader:
    """The header of a file's first line."""
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        found = value.get("schema") if isinstance(value, dict) else None
        raise InputError(
            f"not a profile: its first line has the schema {found!r}, not {SCHEMA!r}",
            where=where,
            fix="measure one with meshcast calibrate --profile",
        )
    names = {f.name for f in fields(ProfileHeader)}
    try:
        return ProfileHeader(**{key: item for key, item in value.items() if key in names})
    except TypeError as error:
        raise InputError(f"the header is incomplete: {error}", where=where) from error


def read_rows(path: Path) -> tuple[ProfileHeader, list[ProfileRow]]:
    """Header and rows; a last line that a killed run tore is left out.

    Raises:
        InputError: It cannot be read, or is not a profile.
    """
    where = str(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    text = unpacked(data, where=where)
    lines = text.split(b"\n")
    torn = lines.pop()  # what follows the last newline: nothing, or a line that was not written to its end
    if not lines:
        raise InputError("not a profile: " + ("its only line is torn" if torn else "it is empty"), where=where)
    values = _parsed(lines, where)
    header = header_from_json(values[0], where)
    for number, row in enumerate(values[1:], 2):
        if not isinstance(row, dict) or not isinstance(row.get("id"), str):
            raise InputError("a row without an id", where=f"{where}:{number}")
    return header, values[1:]


def _parsed(lines: list[bytes], where: str) -> list[Any]:
    """The lines' values; all at once, as that is faster, and one by one to find the line of an error."""
    try:
        values = json.loads(b"[" + b",".join(lines) + b"]")
        if len(values) == len(lines):
            return list(values)
    except (ValueError, RecursionError):
        pass
    found = []
    for number, line in enumerate(lines, 1):
        found.append(json_value(line, where=f"{where}:{number}"))
    return found


def growing(path: Path) -> Path:
    """The path of the uncompressed file that grows while probes are measured."""
    return path.with_suffix("") if path.suffix == ".gz" else path


def write_rows(path: Path, header: ProfileHeader, rows: Iterable[ProfileRow]) -> None:
    """The whole file at once, packed where its name says so: it is there as a whole or not at all."""
    text = "".join(_line(value) for value in (header.to_json(), *rows)).encode()
    with whole_file(path) as file:
        file.write(text)


def _line(value: ProfileRow) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":")) + "\n"


def disagreement(old: ProfileHeader, new: ProfileHeader) -> str:
    """The difference between two headers that keeps their rows out of one file; empty where they agree."""
    return ", ".join(
        f"{name} is {getattr(old, name)!r} there and {getattr(new, name)!r} here"
        for name in _SAME
        if getattr(old, name) != getattr(new, name)
    )


class ProfileJournal:
    """A profile that is being written: rows that are there already, and more of them appended."""

    def __init__(self, path: Path, header: ProfileHeader) -> None:
        """Takes up the file at `path` or its growing part where there is one.

        Raises:
            UsageError: It was measured on another device or with other software.
        """
        self.path = path
        self._growing = growing(path)
        self.header = header
        self.rows: list[ProfileRow] = []
        for found in (self._growing, path):
            if found.is_file():
                old, self.rows = read_rows(found)
                if differs := disagreement(old, header):
                    raise UsageError(
                        f"cannot go on with this profile: {differs}",
                        where=str(found),
                        fix="write to another file with -o, or remove this one",
                    )
                break
        write_rows(self._growing, header, self.rows)  # without a torn line
        self._attempt = self._growing.with_name(self._growing.name + ".attempt")
        self.suspects = self._died()

    def _died(self) -> frozenset[str]:
        """Probes in whose batch a process ended without a word; a single one is the culprit and gets its row."""
        if not self._attempt.is_file():
            return frozenset()
        known = {row["id"] for row in self.rows}
        noted = json.loads(self._attempt.read_text(encoding="utf-8"))
        tried, suspects = ([text for text in noted[key] if text not in known] for key in ("tried", "suspects"))
        if len(tried) == 1:
            culprit = tried.pop()
            self.append([{"id": culprit, "family": culprit.partition(":")[0], "error": "the process ended in it"}])
            suspects = [text for text in suspects if text != culprit]
        return frozenset((*tried, *suspects))

    def attempt(self, ids: Iterable[str]) -> None:
        """Notes what is tried next, for whoever takes over should the process not come back; nothing after the last."""
        noted = {"tried": list(ids), "suspects": sorted(self.suspects)}
        write_whole(self._attempt, json.dumps(noted))

    def append(self, rows: Iterable[ProfileRow]) -> None:
        """Adds rows and sees them to the disk."""
        new = list(rows)
        self.rows += new
        append_whole(self._growing, "".join(map(_line, new)).encode())

    def finish(self) -> None:
        """Writes the result and removes what grew beside it."""
        write_rows(self.path, self.header, self.rows)
        self._attempt.unlink(missing_ok=True)
        if self._growing != self.path:
            self._growing.unlink()
