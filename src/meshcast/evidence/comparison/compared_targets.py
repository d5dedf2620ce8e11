"""What is compared: targets, each looked at once, whatever is tried of it and wherever it is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from meshcast.base import AnsweredOnce, MeshcastError, UsageError
from meshcast.evidence.comparison.keys import traces_content
from meshcast.evidence.comparison.names import Hardware, Target
from meshcast.evidence.comparison.variants import Variant
from meshcast.jobs import JobSource, StatedSource, TraceJob, TraceSource, job_source


class ComparedTargets:
    """Targets by the names that they are shown by; each is looked at once, and what traces hold is read once.

    What is tried of a target (`variants`) makes targets of it that share the one that is looked at.
    """

    def __init__(self, targets: Mapping[str, Target], variants: Sequence[Variant] = (Variant(),)) -> None:
        self._targets = {each.named(name): (name, target) for name, target in targets.items() for each in variants}
        self._variants = {each.named(name): each for name in targets for each in variants}
        self._kept = AnsweredOnce()

    @property
    def names(self) -> tuple[str, ...]:
        """What they are shown by, in the order in which they are asked for."""
        return tuple(self._targets)

    @property
    def given(self) -> tuple[str, ...]:
        """What was named, whatever is tried of it."""
        return tuple(dict.fromkeys(own for own, _ in self._targets.values()))

    @cached_property
    def any_traces(self) -> bool:
        """Whether one of them is a job's traces."""
        return any(isinstance(self._source_or_none(name), TraceSource) for name in self.names)

    def source(self, name: str) -> JobSource:
        """What a target is.

        Raises:
            MeshcastError: It cannot be told.
        """
        own, target = self._targets[name]
        return self._kept.answer(("source", own), lambda: job_source(target))

    @property
    def stated(self) -> tuple[StatedSource, ...]:
        """Those that are files of jobs, each once."""
        found = {self.named_by(name): self._source_or_none(name) for name in self.names}
        return tuple(each for each in found.values() if isinstance(each, StatedSource))

    def named_by(self, name: str) -> str:
        """The target that something is tried of."""
        return self._targets[name][0]

    def variant(self, name: str) -> Variant:
        """What is tried under a name."""
        return self._variants[name]

    def traces(self, name: str, job: TraceJob) -> str:
        """A hash of what the files of a job's traces hold."""
        return self._kept.answer(("traces", self.named_by(name)), lambda: traces_content(job.files))

    def _source_or_none(self, name: str) -> JobSource | None:
        """What a target is; None where it cannot be told, which its own cells say."""
        try:
            return self.source(name)
        except MeshcastError:
            return None


def stated_hardware(targets: ComparedTargets) -> list[Hardware]:
    """The cluster that files of jobs name; nothing where another target is among them, whose hardware nobody has named.

    Raises:
        InputError: A file does not follow the schema.
        UsageError: They name several.
    """
    stated = targets.stated
    clusters = [each.target.on for each in stated]
    different = [each for place, each in enumerate(clusters) if each not in clusters[:place]]
    if len(stated) != len(targets.given) or not different:
        return []
    if len(different) > 1:
        raise UsageError(
            f"the jobs are on {len(different)} different clusters",
            where="--on",
            fix="name the hardware to compare them on",
        )
    return [each for each in different if each is not None]
