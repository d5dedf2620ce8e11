"""`ProgramJob`: one program on all devices of a job, with everything that comes of it stage by stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from meshcast.base import tell
from meshcast.hardware import Cluster, Device
from meshcast.jobs.described import Asked, with_memory_words
from meshcast.jobs.planned.attending import unfused_note
from meshcast.jobs.planned.stacked import assumed_kernels, is_recorded, own_kernels
from meshcast.jobs.program.device_count import device_count
from meshcast.jobs.program.lowering import WhoseKernels, lowered_program
from meshcast.jobs.program.run import Run
from meshcast.jobs.trust import with_trust
from meshcast.lower import LoweredProgram
from meshcast.options import Options, chosen_estimators, chosen_lowering, left_to_compiler
from meshcast.partition import partition
from meshcast.programs import CaptureOptions, ObjectSource, Program, ProgramSource
from meshcast.results import Prediction

COMPILER_DECIDES = "the stack's rewrites ({}) are left to the compiler, which has decided what overlaps"
_STAGES = ("capturing it", "partitioning and lowering it", "estimating its kernels")  # that a person hears of


@dataclass(frozen=True, kw_only=True)
class ProgramJob:
    """One program on all devices.

    Attributes:
        source: Where the program comes from; of a plan what came of it.
        given: What it is asked with, as the user did and with what a stack brings.
        options: The same for the stages below: a plan is carried out, how a model attends is said.
        cluster: The hardware.
        asked: What the model is asked for; None where the target is a program already.
        interval: Whether the ends of the step's interval are asked for.
        brief: Whether the step is all that is asked for: nothing is said of it, and no table is made.
    """

    source: ProgramSource
    given: Options
    options: Options
    cluster: Cluster
    asked: Asked | None = None
    interval: bool = True
    brief: bool = False

    def on(self, cluster: Cluster) -> ProgramJob:
        """The same program on other hardware."""
        return replace(self, cluster=cluster)

    @property
    def device(self) -> Device:
        """The device that every rank runs on."""
        return self.cluster.device

    @cached_property
    def program(self) -> Program:
        """What runs on all devices, captured for their platform."""
        asked = self.options.program
        _tell_stage(0)
        return self.source.program(
            CaptureOptions(
                platform=self.device.platform,
                dims=asked.dims,
                mesh=asked.mesh,
                settings=asked.settings,
                kernels=own_kernels(self.options),
            )
        )

    @property
    def mesh(self) -> Mapping[str, int] | None:
        """Sizes of the mesh that are still to be overridden; None where the program has those that are asked for."""
        asked = self.options.program.mesh
        return asked if asked and dict(asked) != self.program.mesh.sizes else None

    @property
    def local(self) -> Program:
        """The program of one device."""
        return partition(self.program, mesh=self.mesh, route=self.options.program.partitioner)

    @cached_property
    def _carried_out(self) -> Options:
        """The options, less the rewrites of a stack that a compiler makes or leaves out by itself."""
        return left_to_compiler(self.options)

    @cached_property
    def lowered(self) -> LoweredProgram:
        """The kernels that one device runs."""
        options = self._carried_out
        chosen = chosen_lowering(options, self.program, self.device)
        hides = chosen != "compiled" or options.scheduling.hides_latency
        whose = WhoseKernels(asked=options.asked_lowering, lowering=chosen, hides_latency=hides)
        _tell_stage(1)
        return lowered_program(
            self.program, self.mesh, self.device, whose=whose, reading=options.program, lowering=options.lowering
        )

    @cached_property
    def run(self) -> Run:
        """The kernels on the hardware, with who answers for them: memory is judged here, and times are worked out from here."""
        options = self._carried_out
        estimators, told = chosen_estimators(options, self.device)
        devices, notes = device_count(self.lowered.workload, options.devices)
        self.cluster.for_devices(devices)  # refuses more than there are
        source = self.lowered.workload.source
        builder = self.asked.builder if self.asked is not None else None
        unused = "" if is_recorded(source) else unfused_note(builder, options, self.device)
        assumed = assumed_kernels(source, options.brought)
        left = self.options.lowering.rewrites
        decided = (COMPILER_DECIDES.format(left),) if left.any and not options.lowering.rewrites.any else ()
        return Run(
            lowered=self.lowered,
            cluster=self.cluster,
            devices=devices,
            estimators=estimators,
            options=options,
            interval=self.interval,
            brief=self.brief,
            notes=(*told, *notes, *assumed, *decided, *((unused,) if unused else ())),
        )

    def predict(self) -> Prediction:
        """How it will run; where it does not fit, with what takes the model's memory."""
        run = self.run
        _tell_stage(2)
        found = run.predict()
        return found if self.brief else with_memory_words(found, self.asked, self.given, self.device)

    def untimed(self) -> Prediction:
        """What is known of it without a time; where it does not fit, with what takes the model's memory."""
        found = with_trust(self.run.untimed(), self.cluster, self.options)
        return with_memory_words(found, self.asked, self.given, self.device)

    def as_program(self) -> ProgramJob:
        """The same program without its target: sizes and settings are in it, and it is no model any more."""
        options = self.options
        if options.program.dims or options.program.settings:
            options = options.having(dims={}, settings={})
        return replace(self, source=ObjectSource(made=self.program), given=options, options=options, asked=None)


def _tell_stage(done: int) -> None:
    tell(f"stage {done + 1} of {len(_STAGES)}: {_STAGES[done]}", done=done, total=len(_STAGES))
