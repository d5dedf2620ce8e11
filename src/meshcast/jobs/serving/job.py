"""`ServingJob`: a model that answers requests, by a pass over the prompts and a step for every token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from meshcast.hardware import Cluster, Device
from meshcast.jobs.described import Asked, asked_of
from meshcast.jobs.serving.answering import predict_requests
from meshcast.jobs.serving.passes import RequestPasses, request_passes
from meshcast.options import Options
from meshcast.results import Prediction
from meshcast.zoo import SERVE, Builder

if TYPE_CHECKING:
    from meshcast.jobs.program.job import ProgramJob


def asks_to_serve(options: Options) -> bool:
    """Whether a model is asked for both passes of requests, and not for one program."""
    return options.program.settings.get("mode") == SERVE


@dataclass(frozen=True, kw_only=True)
class ServingJob:
    """A model with `mode=serve`: two programs, each asked for as often as their sizes differ.

    Attributes:
        builder: The model.
        given: What it is asked with, as the user did and with what a stack brings.
        cluster: The hardware.
        pass_job: The job of one pass, from its options.
    """

    builder: Builder
    given: Options
    cluster: Cluster
    pass_job: Callable[[Options], ProgramJob] = field(repr=False)

    @property
    def device(self) -> Device:
        """The device that every rank runs on."""
        return self.cluster.device

    @cached_property
    def asked(self) -> Asked:
        """What the model is asked for."""
        return asked_of(self.builder, self.given, self.device)

    @cached_property
    def passes(self) -> RequestPasses:
        """The passes over prompts and the decoding step, each a job of its own.

        Raises:
            UsageError: The model has no such modes, or a length is none.
        """
        return request_passes(self.builder, self.given, self.pass_job)

    def predict(self) -> Prediction:
        """How requests are answered: the decoding step, with what users notice of both passes."""
        return predict_requests(self.builder, self.passes)
