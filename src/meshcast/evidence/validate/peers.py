"""What other tools predict for the same programs: `peer_predictions.csv` beside the measurements."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path

from meshcast.base import InputError

# Name of a peer, and the column of its microseconds; a cell that is not a number is that peer's failure.
PEERS = {"hespas": "hespas_us", "naive_a": "naive_a_us", "naive_b": "naive_b_us"}

PeerFigures = Mapping[str, float]  # microseconds by program id, for those it answered


def read_peers(folder: Path) -> dict[str, PeerFigures]:
    """Each peer's microseconds by program id; empty where the folder has none."""
    path = folder / "peer_predictions.csv"
    if not path.is_file():
        return {}
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"cannot be read: {error}", where=str(path), fix="give a CSV file in UTF-8, with a header"
        ) from error
    if rows and "id" not in rows[0]:
        raise InputError("no column id", where=f"{path}:1", fix="begin with a header that has id")
    found: dict[str, PeerFigures] = {}
    for name, column in PEERS.items():
        if rows and column in rows[0]:
            figures = ((row["id"], _number(row[column])) for row in rows)
            found[name] = {identifier: value for identifier, value in figures if value is not None}
    return found


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None
