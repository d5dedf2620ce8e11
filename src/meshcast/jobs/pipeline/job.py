"""`PipelineJob`: a pipeline of programs, with its step in time and its prediction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from meshcast.base import AnsweredOnce, KeptBeside, UnsupportedError, UsageError, piece
from meshcast.hardware import HEALTHY, Cluster, Device, devices_of
from meshcast.jobs.described import Asked, with_memory_words
from meshcast.jobs.nodes.one_channel import one_channel_run
from meshcast.jobs.pipeline.definition import Pipeline
from meshcast.jobs.pipeline.parts import PartEstimate
from meshcast.jobs.pipeline.prediction import pipeline_step, predict_pipeline, run_pipeline, timed_parts
from meshcast.jobs.pipeline.replicas import Simulate, own_channels
from meshcast.jobs.pipeline.source import PipelineSource, program_key
from meshcast.jobs.pipeline.state import HardwareState
from meshcast.jobs.pipeline.step import StepParts
from meshcast.jobs.program.job import ProgramJob
from meshcast.jobs.program.run import Run
from meshcast.jobs.trust import with_trust
from meshcast.options import Options
from meshcast.partition import shardy
from meshcast.programs import Program, result_names
from meshcast.results import Prediction
from meshcast.simulate import PipelineRun

# The job of one of its programs, from whatever names it, with the options of a stage.
PartJob = Callable[[Any, Options], ProgramJob]


@dataclass(frozen=True, kw_only=True)
class PipelineJob:
    """A pipeline of programs, of a file, of Python or of a plan.

    Attributes:
        source: The pipeline.
        given: What it is asked with, as the user did and with what a stack brings.
        options: The same for the stages below, with a plan carried out.
        cluster: The hardware.
        part_job: The job of one of its programs.
        asked: What the model is asked for; None where no plan made the pipeline.
        interval: Whether the ends of the step's interval are asked for.
        brief: Whether the step is all that is asked for: nothing is said of it, and no table is made.
    """

    source: PipelineSource
    given: Options
    options: Options
    cluster: Cluster
    part_job: PartJob = field(repr=False)
    asked: Asked | None = None
    interval: bool = True
    brief: bool = False
    _kept: AnsweredOnce = field(default_factory=AnsweredOnce, repr=False, compare=False)

    @property
    def device(self) -> Device:
        """The device that every rank runs on."""
        return self.cluster.device

    @property
    def pipeline(self) -> Pipeline:
        """What runs."""
        return self.source.pipeline

    def on(self, cluster: Cluster) -> PipelineJob:
        """The same pipeline on other hardware."""
        return replace(self, cluster=cluster, _kept=AnsweredOnce())

    @cached_property
    def hardware(self) -> Cluster:
        """The hardware of all its devices, once it is known that nothing is asked for which a pipeline does not have.

        Raises:
            UsageError: Something is, or there are other numbers of devices.
        """
        _check_asked(self.pipeline, self.options)
        found = self.cluster.for_devices(self.pipeline.devices)
        if self.options.program.partitioner == "shardy" and self.pipeline.mesh.size > 1:
            shardy.start()  # while the first program is traced
        return found

    @cached_property
    def simulate(self) -> Simulate:
        """How its step is put in time: with channels for all that it sends, or one on each rank.

        Raises:
            UnsupportedError: Devices that are not alike would have to share one.
        """
        if self.options.run.channels != 1:
            return own_channels
        if HardwareState.of(self.options.network.conditions).single:
            raise UnsupportedError(
                "the stages of a pipeline on devices that are not alike have channels of their own alone",
                where="--channels 1", fix="leave out --channels, or --slow and --link of single devices",
            )  # fmt: skip
        return one_channel_run

    @cached_property
    def run(self) -> PipelineRun:
        """Its step in time, as `show` draws it."""
        return run_pipeline(self.pipeline, self.hardware, self._prepared, self.options, self.simulate)

    def assembled(self) -> tuple[Pipeline, StepParts, PipelineRun]:
        """The pipeline, its parts on their hardware put together, and its step in time, as traces are made of them.

        Raises:
            InfeasibleError: A stage does not fit into its devices' memory.
            UnsupportedError: Some devices are in a state of their own.
        """
        hardware = self.hardware
        return self.pipeline, *pipeline_step(self.pipeline, hardware, self._prepared, self.options, self.simulate)

    def predict(self) -> Prediction:
        """How a step will run; where it does not fit, with what takes the model's memory."""
        hardware = self.hardware
        found = predict_pipeline(
            self.pipeline,
            self.options,
            hardware,
            self._prepared,
            self.simulate,
            interval=self.interval,
            brief=self.brief,
        )
        if self.brief:
            return found
        return with_memory_words(with_trust(found, self.cluster, self.given), self.asked, self.given, self.device)

    def timed_parts(self) -> tuple[PartEstimate, ...]:
        """Its parts, each with predictions of its programs; they are put in no step, nor asked whether they fit."""
        return timed_parts(self.pipeline, self.hardware, self._prepared, self.options)

    def as_programs(self) -> PipelineJob:
        """The same pipeline without the model that a plan cut: its programs alone."""
        return replace(self, source=PipelineSource(given=self.pipeline), given=self.options, asked=None)

    def programs(self) -> Iterator[Program]:
        """The programs of its parts, equal parts once, each captured for the platform of its devices."""
        stage = self.options.having(devices=None, conditions=HEALTHY)
        for part in self.pipeline.parts:
            for target in (part.forward, part.backward, part.weight, part.update):
                if target is not None:
                    yield self.part_job(target, stage).program

    def prepared(self, target: Any) -> Run:
        """One of its programs on the hardware of one stage."""
        return self._prepared(target)[0]

    def _prepared(self, target: Any) -> tuple[Run, tuple[str, ...]]:
        """One of its programs on the hardware of one stage, and the names of its results; each is prepared once."""
        return self._kept.answer(program_key(target), lambda: self._counted(target))

    @cached_property
    def _programs(self) -> int:
        """How many programs it has, equal ones once."""
        parts = self.pipeline.parts
        targets = (each for part in parts for each in (part.forward, part.backward, part.weight, part.update))
        return len({program_key(each) for each in targets if each is not None})

    @cached_property
    def _of_stages(self) -> Options:
        """What the programs of stages are asked with: devices and their state are the job's."""
        return self.options.having(devices=None, conditions=HEALTHY)

    def _counted(self, target: Any) -> tuple[Run, tuple[str, ...]]:
        number = min(self._kept.count + 1, self._programs)
        with piece(f"program {number} of {self._programs}", done=number - 1, total=self._programs):
            return self._prepare(target)

    def _prepare(self, target: Any) -> tuple[Run, tuple[str, ...]]:
        if not self.brief or not isinstance(target, Program):
            return self._made_ready(target)
        if (devices := devices_of(self.device)) is not None:
            return self._of_several(target, devices)
        # Points of a sweep that differ in links alone: their programs are the same, lowered by the same options for the same
        # device, and answered for by the same estimators.
        options = self._of_stages
        key = (
            self.device, id(self.options.parts), options.brought, options.written, self.pipeline.devices, self.interval,
        )  # fmt: skip
        run, names, _ = _READY.of(target, key, lambda: (*self._made_ready(target), self.options.parts))
        self.cluster.for_devices(run.devices)  # refuses more than there are
        return replace(run, cluster=self.cluster, options=options), names

    def _of_several(self, target: Any, devices: tuple[Device, ...]) -> tuple[Run, tuple[str, ...]]:
        """A program on devices of several points of a sweep, for all of which it is lowered alike."""
        found = None
        estimate = self.options.estimate
        by_model = estimate.fidelity in _BY_MODEL and estimate.profile is None
        for device in dict.fromkeys(devices):
            if found is not None and by_model and found[0].lowered.lowering == "modelled":
                break  # whose kernels run, and who answers for them, follows from the kind of device, which all have
            run, names = self.on(replace(self.cluster, device=device))._prepare(target)
            if found is None:
                found = run, names
            elif run.lowered is not found[0].lowered or run.estimators != found[0].estimators:
                raise UnsupportedError("it is lowered otherwise, or others answer for it, at some points")
        assert found is not None
        return replace(found[0], cluster=self.cluster), found[1]

    def _made_ready(self, target: Any) -> tuple[Run, tuple[str, ...]]:
        job = self.part_job(target, self._of_stages)
        program = job.program
        names = _NAMES.of(program.module, None, lambda: result_names(program.module, where=program.source))
        run = job.as_program().run
        devices = self.pipeline.devices
        return replace(run, whole=False, job_devices=devices, interval=self.interval, brief=self.brief), names


_BY_MODEL = ("analytical", "roofline")  # which ask neither what was measured on a device nor its compiler
# Of programs on hardware of sweeps, with the parts of the options that they were asked with, which it holds.
_READY: KeptBeside[tuple[Run, tuple[str, ...], object]] = KeptBeside()
_NAMES: KeptBeside[tuple[str, ...]] = KeptBeside()  # of results, by program


def _check_asked(pipeline: Pipeline, options: Options) -> None:
    """Refuses what a pipeline's own file says, or what does not concern it.

    Raises:
        UsageError: Something like that is asked for.
    """
    for flag, given in (
        ("--mesh", options.program.mesh),
        ("--set", options.program.settings),
        ("--dim", options.program.dims),
    ):
        if given:
            raise UsageError("a pipeline's programs and mesh are given by its file", where=flag, fix="change the file")
    for flag, asked, instead in (
        (
            "--placement",
            options.network.placement,
            "order the axes of `mesh` in its file: stages and axes number the devices",
        ),
        ("--fabric", options.network.fabric, "describe the hardware as a cluster, in a file behind --on"),
        ("--beside", options.network.beside, "say what other jobs take with --background LEVEL=SHARE"),
    ):
        if asked:
            raise UsageError(
                "it concerns devices of one program, and a pipeline's programs have some of the devices each",
                where=flag,
                fix=instead,
            )
    if options.devices not in (None, pipeline.devices):
        raise UsageError(
            f"the pipeline has {pipeline.devices} devices ({pipeline.stages} stages of {pipeline.mesh.size}), not "
            f"{options.devices}",
            where="--devices",
            fix="change `mesh` or the stages in its file",
        )
