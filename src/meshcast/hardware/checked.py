"""How a device's predictions were checked: as its file says, with what they were held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Best first: programs and kernels of the device measured by this project; single kernels that others measured; training
# runs that others published, and nothing smaller; nothing at all.
HowChecked = Literal["measured", "kernels", "runs", "data-sheet"]
HOW_CHECKED_WORDS: dict[HowChecked, str] = {
    "measured": "measured by this project",
    "kernels": "checked against others' measured kernels",
    "runs": "checked against published runs only",
    "data-sheet": "data sheet only, checked against nothing",
}


RUNS_PAGE = "docs/accuracy-runs.md"  # where published runs of many devices stand


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """How a device was checked, against what (words, and a page of the documentation), and whether many at once were."""

    how: HowChecked
    against: str = ""
    clusters: bool = False  # published runs of many such devices were among it

    @property
    def alone(self) -> Checked:
        """The check without its published runs, for a network that none of them had: of single devices, or none."""
        if not self.clusters:
            return self
        if self.how == "runs":
            return DATA_SHEET
        kept = "; ".join(each for each in self.against.split("; ") if RUNS_PAGE not in each)
        return Checked(how=self.how, against=kept)


DATA_SHEET = Checked(how="data-sheet")
