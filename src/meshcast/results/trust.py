"""`Trust`: how the predictions of a device were checked, and how much wider its interval is for that."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from meshcast.hardware import HOW_CHECKED_WORDS, HowChecked
from meshcast.results.lowered_by import UsualDistance


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """How a prediction's device was checked.

    Attributes:
        checked: How.
        against: Against what; empty where against nothing.
        widened: What the interval's lower end was divided by and its upper end multiplied by.
        energy: Where joules per FLOP come from.
        lowering: How far modelled kernels usually are from the real compiler's; None where they are its own, or those of no GPU.
    """

    checked: HowChecked
    against: str
    widened: tuple[float, float]
    energy: str
    lowering: UsualDistance | None = None

    def to_json(self) -> dict[str, Any]:
        """The object `trust` of a prediction."""
        return {
            "checked": self.checked,
            "words": HOW_CHECKED_WORDS[self.checked],
            "against": self.against or None,
            "widened": list(self.widened),
            "energy": self.energy,
            **({"lowering": asdict(self.lowering)} if self.lowering is not None else {}),
        }

    def rows(self) -> list[tuple[str, str]]:
        """For people: a line, and one about modelled kernels."""
        low, high = self.widened
        said = HOW_CHECKED_WORDS[self.checked] + (f" ({self.against})" if self.against else "")
        ways = (("below", low - 1), ("above", high - 1))
        # An end that moves by less than a word about it can say is not spoken of.
        moved = [(side, share) for side, share in ways if round(abs(share), 2) > 0]
        parts = [f"{abs(share):.0%} {'wider' if share > 0 else 'narrower'} {side}" for side, share in moved]
        if parts:
            said += f"; interval {' and '.join(parts)} for that"
        return [("trust", said), *(self.lowering.rows() if self.lowering is not None else ())]
