"""`TraceJob`: a job that ran, as its ranks' traces tell it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from meshcast.base import AnsweredOnce
from meshcast.chakra import read_metadata
from meshcast.hardware import Cluster, device_names, resolve
from meshcast.jobs.traced.files import TraceFiles, find_traces, names_traces
from meshcast.jobs.traced.heeded import check_asked
from meshcast.jobs.traced.home import home_of
from meshcast.jobs.traced.prediction import predict_traces
from meshcast.jobs.trust import with_trust
from meshcast.options import Options, chosen_estimators
from meshcast.results import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSource:
    """A trace, a prefix of traces, a folder of them, or a manifest; its files are looked for once."""

    path: Path
    _kept: AnsweredOnce = field(default_factory=AnsweredOnce, repr=False, compare=False)

    @classmethod
    def of(cls, target: object) -> TraceSource | None:
        """That of a target which names traces; None of any other."""
        return cls(path=Path(target)) if isinstance(target, (str, Path)) and names_traces(target) else None

    @property
    def files(self) -> TraceFiles:
        """The files that it stands for.

        Raises:
            InputError: There are none, ranks are missing, or a folder has those of several jobs.
        """
        return self._kept.answer("files", lambda: find_traces(self.path))


@dataclass(frozen=True, kw_only=True)
class TraceJob:
    """A job that ran: its ranks, kernels and their order are those of its traces.

    Attributes:
        source: Its traces.
        given: What it is asked with.
        known: The hardware, where somebody has looked it up already.
    """

    source: TraceSource
    given: Options
    known: Cluster | None = None

    @property
    def files(self) -> TraceFiles:
        """Its traces' files."""
        return self.source.files

    @cached_property
    def cluster(self) -> Cluster:
        """The hardware: what is asked for, else the device that the traces are of."""
        if self.known is not None:
            return self.known
        home = None if "on" in self.given.asked else home_of(read_metadata(next(iter(self.files.by_rank.values()))))
        return resolve(home if home in device_names() else self.given.on)

    def predict(self) -> Prediction:
        """How the job will run; what a trace has decided already is refused.

        Raises:
            UsageError: Such a thing is asked for.
        """
        options = self.given
        check_asked(options)
        cluster = self.cluster
        estimators, notes = chosen_estimators(options, cluster.device)
        prediction = predict_traces(self.files, options, cluster, estimators)
        return with_trust(replace(prediction, warnings=(*notes, *prediction.warnings)), cluster, options)
