"""The source line behind a predicted kernel, as far as the program knows it.

XLA's text has tables of files, places and stack frames at its head, and each instruction the number of its frame. StableHLO ops
carry their call stack in their debug location. Many ops share a name there (`convert_element_type`), and those of different
lines have no answer.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from meshcast.base import unpacked
from meshcast.lower import Kernel
from meshcast.programs import Program, operations, read_bytes
from meshcast.workload import location_name

_PLACE = re.compile(r'"([^"]+)":(\d+):\d+')
_FILE = re.compile(r'^(\d+) "(.*)"$')
_LOCATION = re.compile(r"^(\d+) \{file_name_id=(\d+) .*?\bline=(\d+)")
_FRAME = re.compile(r"^(\d+) \{file_location_id=(\d+)")
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = .*?metadata=\{([^}]*)")
_FRAME_OF = re.compile(r"stack_frame_id=(\d+)")
_LINE_OF = re.compile(r'source_file="([^"]*)".*?source_line=(\d+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Places in source files, by the name of an instruction, else by that of an op's location."""

    by_name: Mapping[str, str] = field(default_factory=dict)
    by_location: Mapping[str, str] = field(default_factory=dict)

    def of(self, kernel: Kernel) -> str:
        """`file.py:12` of a kernel's root; nothing where it is not known."""
        return self.by_name.get(kernel.name) or self.by_location.get(kernel.location, "")


def sources_of(program: Program) -> Sources:
    """What a captured program says about its source."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for operation in operations(program.module.operation):
        name = location_name(operation)
        place = _PLACE.search(str(operation.location)) if name else None
        if place:
            found[name].add(f"{place[1]}:{place[2]}")
    unique = {name: next(iter(places)) for name, places in found.items() if len(places) == 1}
    return Sources(by_name=_of_hlo(Path(program.source)), by_location=unique)


def _of_hlo(path: Path) -> dict[str, str]:
    """Places by the name of an instruction, of a file with XLA's text."""
    if not path.is_file():
        return {}
    content = unpacked(read_bytes(path), where=str(path))
    return hlo_places(content.decode(errors="replace")) if content.lstrip().startswith(b"HloModule") else {}


def hlo_places(text: str) -> dict[str, str]:
    """Places by the name of an instruction, of XLA's text."""
    files: dict[str, str] = {}
    places: dict[str, str] = {}
    frames: dict[str, str] = {}
    found: dict[str, str] = {}
    table = ""
    for line in text.splitlines():
        if line in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
            table = line
        elif table == "FileNames" and (match := _FILE.match(line)):
            files[match[1]] = match[2]
        elif table == "FileLocations" and (match := _LOCATION.match(line)):
            places[match[1]] = f"{files.get(match[2], '?')}:{match[3]}"
        elif table == "StackFrames" and (match := _FRAME.match(line)):
            frames[match[1]] = places.get(match[2], "")
        elif match := _INSTRUCTION.match(line):
            frame, own = _FRAME_OF.search(match[2]), _LINE_OF.search(match[2])
            place = frames.get(frame[1], "") if frame else f"{own[1]}:{own[2]}" if own else ""
            if place:
                found[match[1]] = place
    return found
