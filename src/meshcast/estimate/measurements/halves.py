"""Two halves of what was measured: one to fit on, the other to judge by.

The half follows from a hash of the name, so that every fit leaves out the same programs and adding one moves no other.
Variants of a model are too alike to be split: they share the half of their family.
"""

from __future__ import annotations

import hashlib
import re
from typing import Literal, get_args

Split = Literal["fitted", "held-out", "all"]
SPLITS: tuple[Split, ...] = get_args(Split)


def is_fitted(name: str, *, whole_model: bool = False) -> bool:
    """Whether a program is in the half that is fitted."""
    text = family(name) if whole_model else name
    return hashlib.sha256(text.encode()).digest()[0] % 2 == 0


def family(name: str) -> str:
    """The family that variants of a model share: the name up to the first digit or dash, `llama` of `llama3-8b-decode`."""
    found = re.match(r"[^0-9-]+", name)
    return found[0] if found else name


def chosen_half(name: str, split: Split, *, whole_model: bool = False) -> bool:
    """Whether a split takes a program."""
    return split == "all" or is_fitted(name, whole_model=whole_model) == (split == "fitted")
