"""What a run lacks, and what is taken for granted about it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Findings:
    """Collected while a run is read."""

    missing: list[str] = field(default_factory=list)
    blamed: dict[str, str] = field(default_factory=dict)
    fixes: dict[str, str] = field(default_factory=dict)
    assumptions: list[str] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)

    def lacks(self, what: str, *, of: str = "", fix: str = "") -> None:
        """Notes something without which the run cannot be written as a target, the field that is to blame, and what helps."""
        self.missing.append(what)
        self._blames(what, of, fix)

    def contradicts(self, what: str, *, of: str, fix: str) -> None:
        """Notes what cannot be meant as it is told.

        Of a published run, which has run, the nearest that can be is taken and assumed; in a file of one's own it is a mistake.
        """
        self.assumptions.append(what)
        self.contradictions.append(what)
        self._blames(what, of, fix)

    def assumes(self, what: str) -> None:
        """Notes something that the source does not say."""
        self.assumptions.append(what)

    def _blames(self, what: str, of: str, fix: str) -> None:
        if of:
            self.blamed[what] = of
        if fix:
            self.fixes[what] = fix
