"""What a run lacks, and what is taken for granted about it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Findings:
    """Collected while a run is read."""

    missing: list[str] = field(default_factory=list)
    blamed: dict[str, str] = field(default_factory=dict)
    assumptions: list[str] = field(default_factory=list)

    def lacks(self, what: str, *, of: str = "") -> None:
        """Notes something without which the run cannot be written as a target, and the field of it that is to blame."""
        self.missing.append(what)
        if of:
            self.blamed[what] = of

    def assumes(self, what: str) -> None:
        """Notes something that the source does not say."""
        self.assumptions.append(what)
