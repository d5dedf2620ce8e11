"""A pipeline of functions as a pipeline of files, captured once: for tests of what becomes of its programs."""

from __future__ import annotations

import re
from pathlib import Path

from meshcast.programs import CaptureOptions, source_of


def write_as_files(pipeline: Path, folder: Path) -> Path:
    """Writes the file again with StableHLO, names of ops and arguments included, in place of each `MODULE.py:FUNCTION`."""
    text = pipeline.read_text()
    for name in dict.fromkeys(re.findall(r'"(\w+\.py:\w+)"', text)):
        module = source_of(str(pipeline.parent / name)).program(CaptureOptions()).module
        path = folder / f"{name.rpartition(':')[2]}.mlir"
        path.write_text(module.operation.get_asm(enable_debug_info=True))
        text = text.replace(f'"{name}"', f'"{path.name}"')
    (folder / pipeline.name).write_text(text)
    return folder / pipeline.name
