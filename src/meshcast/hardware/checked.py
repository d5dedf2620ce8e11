"""How a device's predictions were checked: as its file says, with what they were held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Best first: programs and kernels of the device measured by this project; single kernels that others measured; training
# runs that others published, and nothing smaller; nothing at all.
How = Literal["measured", "kernels", "runs", "data-sheet"]
WORDS: dict[How, str] = {
    "measured": "measured by this project",
    "kernels": "checked against others' measured kernels",
    "runs": "checked against published runs only",
    "data-sheet": "data sheet only, checked against nothing",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """How a device was checked, against what (words, and a page of the documentation), and whether many at once were."""

    how: How
    against: str = ""
    clusters: bool = False  # published runs of many such devices were among it


DATA_SHEET = Checked(how="data-sheet")
