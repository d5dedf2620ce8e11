"""A comparison's run folder: finished cells by content, so that nothing is asked twice, and the tables and plot.

cells/KEY.json   each finished cell, by the hash of everything it depends on
table.json       the cells with their ratios, and the summary: what `compare --json` prints
table.csv        one row a cell
report.txt       what `compare` prints
report.md        the same as a page
plot.svg         step times, and how the fidelities agree
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from meshcast.base import UsageError, keep, kept_as, not_written, whole_files
from meshcast.evidence.comparison.cell import Ask, Cell, kept_cell
from meshcast.evidence.comparison.comparison import Comparison
from meshcast.evidence.comparison.markdown import comparison_page
from meshcast.evidence.comparison.plot import comparison_svg
from meshcast.evidence.comparison.tables import comparison_text

CELLS = "cells"
PLOT = "plot.svg"
ANOTHER_FOLDER = "name another: -o DIR"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """A folder of one or more comparisons."""

    path: Path

    @classmethod
    def opened(cls, path: Path) -> RunFolder:
        """The folder, made if it is not there.

        Raises:
            UsageError: It holds something else, or cannot be made.
            OutputError: The disk is full.
        """
        try:
            if path.is_dir() and not (path / CELLS).is_dir() and any(path.iterdir()):
                raise UsageError(
                    "the folder is not empty, and no comparison's run folder",
                    where=str(path),
                    fix=ANOTHER_FOLDER,
                )
            (path / CELLS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise not_written(error, path, ANOTHER_FOLDER) from None
        return cls(path=path)

    def kept(self, key: str, ask: Ask) -> Cell | None:
        """The answer that an earlier run kept."""
        return kept_as(self._place(key), lambda data: kept_cell(ask, json.loads(data)))

    def keep(self, key: str, cell: Cell) -> None:
        """Keeps an answer for the next run."""
        keep(self._place(key), json.dumps(cell.to_json(), allow_nan=False).encode())

    def write(self, comparison: Comparison, *, command: Sequence[str] = ()) -> None:
        """Writes tables, report and plot.

        Args:
            comparison: What they show.
            command: The words that asked for it, where a command did: whoever reads the folder can ask again.

        Raises:
            UsageError: They cannot be written.
            OutputError: The disk is full; those of an earlier run stay.
        """
        cells = [comparison.cell_json(cell) for cell in comparison.cells]
        table = {**comparison.to_json(), **({"command": list(command)} if command else {}), "table": cells}
        contents = {
            "table.json": json.dumps(table, allow_nan=False, indent=1) + "\n",
            "table.csv": table_csv(comparison),
            "report.txt": comparison_text(comparison) + "\n",
            "report.md": comparison_page(comparison, plot=PLOT),
            PLOT: comparison_svg(comparison),
        }
        with whole_files(self.path / "table.json", fix=ANOTHER_FOLDER) as staged:
            for name, text in contents.items():
                staged.path(self.path / name).write_text(text, encoding="utf-8")

    def _place(self, key: str) -> Path:
        return self.path / CELLS / f"{key}.json"


def table_csv(comparison: Comparison) -> str:
    """`Comparison.table()` as CSV."""
    rows = comparison.table()
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
