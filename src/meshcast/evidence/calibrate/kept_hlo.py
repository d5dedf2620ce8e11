"""The optimized HLO of probes, kept beside a profile: instructions' names tell the kernels of a probe apart."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshcast.base import InputError, append_whole, not_written, unpacked

if TYPE_CHECKING:
    from meshcast.evidence.calibrate.compiling import Ready

HLO_FILE = "optimized.jsonl.gz"  # in its folder: a line a probe, {"id": ..., "hlo": ...}
_ENDINGS = (".gz", ".jsonl", ".profile")


def hlo_folder(profile: Path) -> Path:
    """The folder that goes with a profile: `h200.hlo` beside `h200.profile.jsonl.gz`."""
    name = profile.name
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return profile.with_name(f"{name}.hlo")


class KeptHlo:
    """The file while it grows; of probes with one kernel there is nothing to tell apart, and nothing is kept."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise not_written(error, folder) from None
        self._path = folder / HLO_FILE

    def add(self, item: Ready, row: dict[str, Any]) -> None:
        """Keeps a probe's text: another member of the packed file."""
        if len(row.get("kernels", ())) < 2:
            return
        line = json.dumps({"id": item.probe.id, "hlo": item.run.as_text()}) + "\n"
        append_whole(self._path, gzip.compress(line.encode(), mtime=0))


def read_hlo(folder: Path, *, needed: bool) -> dict[str, str]:
    """Texts by probe; those measured last where one was measured again.

    Args:
        folder: Where `KeptHlo` wrote.
        needed: Whether it must be there.

    Raises:
        InputError: It cannot be read, or is needed and not there.
    """
    path = folder / HLO_FILE
    if not path.is_file():
        if needed:
            raise InputError(
                f"no {HLO_FILE} in it", where=str(folder), fix="give the folder that meshcast calibrate --profile kept"
            )
        return {}
    try:
        rows = [json.loads(line) for line in unpacked(path.read_bytes(), where=str(path)).splitlines()]
        return {str(row["id"]): str(row["hlo"]) for row in rows}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"not the HLO of probes: {error}", where=str(path)) from error
