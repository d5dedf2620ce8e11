"""`PipelineSource`: a pipeline or its file, read once, and the sources of its programs, each looked at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from meshcast.base import AnsweredOnce
from meshcast.jobs.pipeline.definition import Pipeline
from meshcast.jobs.pipeline.file import read_pipeline

T = TypeVar("T")
SUFFIX = ".toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSource:
    """A pipeline, or the file of one, which is read when the pipeline is asked for."""

    given: Pipeline | Path
    _kept: AnsweredOnce = field(default_factory=AnsweredOnce, repr=False, compare=False)

    @classmethod
    def of(cls, target: object) -> PipelineSource | None:
        """That of a target which is a pipeline, or is called as the file of one; None of any other."""
        if isinstance(target, Pipeline):
            return cls(given=target)
        if isinstance(target, (str, Path)) and str(target).endswith(SUFFIX):
            return cls(given=Path(target))
        return None

    @property
    def where(self) -> str:
        """What to call it before it is read."""
        return self.given.name if isinstance(self.given, Pipeline) else str(self.given)

    @property
    def called(self) -> str:
        """What errors call it; empty where it has no file."""
        return "" if isinstance(self.given, Pipeline) else str(self.given)

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline.

        Raises:
            InputError: The file cannot be read or does not follow the schema.
            UsageError: Its numbers do not fit together.
        """
        given = self.given
        return given if isinstance(given, Pipeline) else self._kept.answer("file", lambda: read_pipeline(given))

    def of_program(self, target: Any, look: Callable[[Any], T]) -> T:
        """What `look` finds a program's target to be, which is looked at once."""
        return self._kept.answer(("program", program_key(target)), lambda: look(target))


def program_key(target: Any) -> object:
    """What tells targets of programs apart: names by what they say, objects by what they are."""
    return str(target) if isinstance(target, (str, Path)) else id(target)
