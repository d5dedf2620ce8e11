"""What a row lacks, and what is taken for granted about it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Findings:
    """Collected while a row is read."""

    missing: list[str] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)

    def lacks(self, what: str) -> None:
        """Notes something without which the run cannot be written as a target."""
        self.missing.append(what)

    def assumes(self, what: str) -> None:
        """Notes something that the source does not say."""
        self.assumptions.append(what)
