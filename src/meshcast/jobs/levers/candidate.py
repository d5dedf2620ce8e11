"""`Question`: a prediction and everything that it was asked with; `Candidate`: the same with one thing changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from meshcast.hardware import Cluster
from meshcast.jobs.described import Asked
from meshcast.jobs.planned.attending import unfused
from meshcast.options import Options
from meshcast.results import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A change that may help.

    Attributes:
        change: What it is, in words.
        flag: What makes it on the command line: flags with their values, each in place of the same flag (of `--set` the same
            name) where that is there already; or `without --slow`, a flag that is to be left out.
        options: What the command line then asks with.
        bound: The share of the time that it can save at most or hardly more, by Amdahl's law from the breakdown: the part that it
            acts on, times what becomes of it. It decides what is tried, and is never told.
        kind: What it changes. Of several candidates of a kind one is tried first, as the others hardly save as much more.
    """

    change: str
    flag: str
    options: Options
    bound: float
    kind: str = ""


def by_promise(found: Iterable[Candidate]) -> list[Candidate]:
    """Candidates in the order in which they are tried: by their bounds, of which the nth of a kind has an nth."""
    ranked: list[tuple[float, Candidate]] = []
    seen: Counter[str] = Counter()
    for each in sorted(found, key=lambda each: -each.bound):
        seen[each.kind] += 1
        ranked.append((each.bound / (seen[each.kind] if each.kind else 1), each))
    return [each for _, each in sorted(ranked, key=lambda pair: -pair[0])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A prediction, of a step that has a time or of one that does not fit, and what it was asked with.

    Attributes:
        options: Everything besides the target, with what a stack brings.
        asked: What the model is asked for; None where the target is a program, a pipeline's file or traces.
        prediction: The answer.
        cluster: The hardware.
    """

    options: Options
    asked: Asked | None
    prediction: Prediction
    cluster: Cluster

    @property
    def unfused(self) -> str:
        """Why the model has no fused attention here; empty where it has."""
        asked = self.asked
        if asked is None:
            return "a program attends as it is written"
        precision = asked.plan.precision if asked.plan is not None else None
        library = self.options.lowering.attention_library
        return unfused(asked.builder, asked.settings, self.cluster.device, library, precision=precision)

    def share(self, part: str) -> float:
        """A part of the breakdown as a share of the step."""
        parts = self.prediction.breakdown
        return getattr(parts, part) / parts.total if parts is not None and parts.total else 0.0

    def exposed(self, *axes: str) -> float:
        """The share of the step in which communication over groups with one of these mesh axes is exposed."""
        found, step = self.prediction.communication, self.prediction.step_time_s
        if found is None or not step:
            return 0.0
        return sum(group.exposed_s for group in found.groups if set(axes) & set(group.group.split("*"))) / step

    def sends(self, *kinds: str) -> float:
        """The share of the time of collectives that those of some kinds take."""
        total = sum(each.seconds for each in self.prediction.collectives)
        return sum(each.seconds for each in self.prediction.collectives if each.kind in kinds) / total if total else 0.0

    def changed(self, **values: object) -> Options:
        """The options with some fields as the user would have written them."""
        return self.options.changed(values, where="levers")

    def with_setting(self, name: str, value: object) -> Options:
        """The options with a model's setting changed."""
        return self.changed(settings={**self.options.program.settings, name: str(value)})

    def without_fields(self, names: Collection[str]) -> Options:
        """The options with some fields at their defaults, as if nobody had asked for them."""
        default = Options()
        written = tuple(name for name in self.options.written if name not in names)
        return self.options.having(written=written, **{name: default.value(name) for name in names})
