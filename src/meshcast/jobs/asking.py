"""The whole way of the data in one call: `predict(target, on=...)`; each stage can be called alone."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from meshcast.base import UnsupportedError, UsageError, collected_later, names_taken, room_for_nesting
from meshcast.hardware import HEALTHY, Cluster, Device, resolve
from meshcast.jobs.described import Asked, asked_of, inputs_of, throughput_of, unsaid_recipes
from meshcast.jobs.levers import Question, how_many, with_levers
from meshcast.jobs.nodes.one_channel import one_channel_run
from meshcast.jobs.pipeline import (
    Pipeline,
    Prepare,
    is_pipeline,
    pipeline_step,
    predict_pipeline,
    read_pipeline,
    run_pipeline,
)
from meshcast.jobs.pipeline.replicas import Simulate, own_channels
from meshcast.jobs.pipeline.state import HardwareState
from meshcast.jobs.pipeline.step import StepParts
from meshcast.jobs.planned import Plan, check_device, model_of, plan_target
from meshcast.jobs.planned.attending import unfused_note, with_attention, with_attention_set
from meshcast.jobs.planned.memory_parts import in_words_of_plans
from meshcast.jobs.planned.stacked import assumed_kernels, chosen_options, with_stack
from meshcast.jobs.program.deadlocks import check_program
from meshcast.jobs.program.device_count import device_count
from meshcast.jobs.program.run import Run as Run
from meshcast.jobs.serving import predict_serving
from meshcast.jobs.traced import check_asked, find_traces, names_traces, predict_traces
from meshcast.jobs.trust import with_trust
from meshcast.lower import LoweredProgram, OutOfMemoryError, Overflow, backend_of, lower, lower_compiled, overlapped
from meshcast.options import Options as Options
from meshcast.options import chosen_estimators, chosen_lowering, given_options, key_of
from meshcast.partition import partition, shardy
from meshcast.programs import CaptureOptions, Program, Target, load, result_names
from meshcast.results import Prediction
from meshcast.simulate import PipelineRun
from meshcast.workload import ReadOptions, may_deadlock, read_workload, registered_rules
from meshcast.zoo import SERVE, model_named


def predict(target: Target | Pipeline, options: Options | None = None, **overrides: object) -> Prediction:
    """How a target will run: `predict("step.mlir", on="h200")`.

    Args:
        target: A file (StableHLO, HLO, a Hugging Face configuration), `module:function`, a model's name, a captured
            `Program` or what `load` makes one of, a `Pipeline` (or its .toml file), or Chakra traces (a file, prefix,
            folder or manifest).
        options: All settings at once.
        **overrides: Single settings, by the field names of `Options`; `stack`, a software stack or its name, gives those
            that are left at their defaults.
    """
    started = time.perf_counter()
    chosen = chosen_options(options, overrides, where="predict")
    with collected_later(), names_taken(), room_for_nesting():
        if not how_many(chosen.levers) or names_traces(target):  # a trace has decided what could be changed
            prediction = _question(target, None, chosen).prediction
        else:
            again = partial(_question, target, _loaded(target, chosen))
            prediction = with_levers(again(chosen), again)
    return replace(prediction, seconds=time.perf_counter() - started)


def _loaded(target: Any, options: Options) -> Program | None:
    """The program of a target that is not read, or run, for every change again; None of models and pipelines."""
    if is_pipeline(target) or options.program.plan is not None or model_named(target) is not None:
        return None
    return captured(target, options, resolve(options.on).device)[0]


def _question(target: Any, loaded: Program | None, options: Options) -> Question:
    """A prediction with what shaped it, and of models with what it gets done, beside everything that it was asked with."""
    traced = names_traces(target)  # before models: a manifest of traces is a .json file as a configuration is
    prediction = None if traced else predict_serving(target, options, partial(_predicted, target))
    if prediction is None:  # sizes are in a program that is loaded
        prediction = _predicted(loaded or target, options.having(dims={}) if loaded else options)
    asked = None if traced else _asked(target, options)
    throughput = throughput_of(asked, prediction) if asked is not None else None
    told = (*prediction.warnings, *(unsaid_recipes(asked, options) if asked is not None else ()))
    described = inputs_of(options, asked, prediction)
    prediction = replace(prediction, inputs=described, throughput=throughput, warnings=told)
    return Question(options=options, asked=asked, prediction=prediction, cluster=resolve(options.on))


def _asked(target: Any, options: Options) -> Asked | None:
    """What a model is asked for; None where the target is a program already."""
    return asked_of(target, options, lambda used: resolved(target, used)[1].program.settings, partial(_plan, target))


def _predicted(target: Target | Pipeline, options: Options) -> Prediction:
    """A prediction of one program, one pipeline of them, or one job's traces."""
    if names_traces(target):
        return _predict_traces(target, options)  # type: ignore[arg-type]  # it is a path
    planned, chosen = resolved(target, options)
    if is_pipeline(planned):
        pipeline, cluster, prepare_part = _prepared_pipeline(planned, chosen)
        prediction = predict_pipeline(pipeline, chosen, cluster, prepare_part, _simulate(chosen))
        prediction = with_trust(prediction, resolve(options.on), options)
    else:
        prediction = prepare(planned, chosen).predict()
    if prediction.feasible:
        return prediction
    device = resolve(options.on).device
    # Changes of the plan are named where none is tried.
    named = not how_many(options.levers)
    return in_words_of_plans(prediction, target, options, partial(_plan, target), device, named=named)


def _predict_traces(target: str | Path, options: Options) -> Prediction:
    """How the job of some traces will run; what a trace has decided already is refused."""
    check_asked(options)
    cluster = resolve(options.on)
    options.check_choices()
    estimators, notes = chosen_estimators(options, cluster.device)
    prediction = predict_traces(find_traces(target), options, cluster, estimators)
    return with_trust(replace(prediction, warnings=(*notes, *prediction.warnings)), cluster, options)


def resolved(target: Any, options: Options) -> tuple[Any, Options]:
    """A target and its options with the plan carried out, which makes a program or a pipeline of them."""
    options = with_stack(options)
    if options.program.plan is None:
        builder = model_named(target)
        if builder is None or options.program.settings.get("mode") == SERVE:
            return target, options
        return target, options.having(settings=with_attention_set(builder, options, resolve(options.on).device))
    if options.program.mesh is not None:
        raise UsageError("a plan makes the mesh itself", where="--mesh", fix="give --plan or --mesh")
    device = resolve(options.on).device
    plan = _plan(target, options, device)
    planned = plan_target(
        target, plan, settings=options.program.settings, devices=options.devices, platform=device.platform
    )
    # What is saved where is no part of the program: its lowering says.
    said = options.lowering.overlap.text
    overlap = ",".join(filter(None, (said, "offload"))) if plan.offload == "activations" else options.lowering.overlap
    return planned, options.having(plan=None, settings={}, attention="plain", overlap=overlap)


def _plan(target: Any, options: Options, device: Device) -> Plan:
    """The plan that is asked for, with the attention that the device gives its model where it leaves it open."""
    assert options.program.plan is not None
    plan = options.program.plan.value
    check_device(plan, device)
    return with_attention(plan, model_of(target), options, device)


def pipeline_run(target: str | Path | Pipeline, options: Options) -> PipelineRun:
    """A pipeline's step in time, as `show` draws it."""
    target, options = resolved(target, options)
    return run_pipeline(*_prepared_pipeline(target, options), options, _simulate(options))


def assembled_pipeline(target: str | Path | Pipeline, options: Options) -> tuple[Pipeline, StepParts, PipelineRun]:
    """A pipeline, its parts on their hardware put together, and its step in time, as traces are made of them."""
    target, options = resolved(target, options)
    pipeline, cluster, prepare_part = _prepared_pipeline(target, options)
    return pipeline, *pipeline_step(pipeline, cluster, prepare_part, options, _simulate(options))


def _simulate(options: Options) -> Simulate:
    """How a pipeline's step is put in time: with channels for all that it sends, or one on each rank.

    Raises:
        UnsupportedError: Devices that are not alike would have to share one.
    """
    if options.run.channels != 1:
        return own_channels
    if HardwareState.of(options.network.conditions).single:
        raise UnsupportedError(
            "the stages of a pipeline on devices that are not alike have channels of their own alone",
            where="--channels 1", fix="leave out --channels, or --slow and --link of single devices",
        )  # fmt: skip
    return one_channel_run


def _prepared_pipeline(target: str | Path | Pipeline, options: Options) -> tuple[Pipeline, Cluster, Prepare]:
    """A pipeline, its hardware, and how each of its programs is prepared on that of one stage, once."""
    pipeline = target if isinstance(target, Pipeline) else read_pipeline(Path(target))
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
    cluster = resolve(options.on).for_devices(pipeline.devices)
    if options.program.partitioner == "shardy" and pipeline.mesh.size > 1:
        shardy.start()  # while the first program is traced
    stage = options.having(devices=None, conditions=HEALTHY)
    prepared: dict[object, tuple[Run, tuple[str, ...]]] = {}

    def prepare_part(target: Any) -> tuple[Run, tuple[str, ...]]:
        key = target if isinstance(target, (str, Path)) else id(target)
        if key not in prepared:
            program, _ = captured(target, stage, cluster.device)
            names = result_names(program.module, where=program.source)
            prepared[key] = replace(prepare(program, stage), whole=False, job_devices=pipeline.devices), names
        return prepared[key]

    return pipeline, cluster, prepare_part


def prepare(target: Target, options: Options) -> Run:
    """Everything up to the kernels: captured, partitioned, read and lowered for the chosen hardware."""
    options = given_options(options)
    cluster = resolve(options.on)
    unused = unfused_note(model_named(target), options, cluster.device) if options.program.attention == "flash" else ""
    target, options = resolved(target, options)
    estimators, told = chosen_estimators(options, cluster.device)
    options.check_choices()
    lowered = lowered_program(target, options, cluster.device)
    devices, notes = device_count(lowered.workload, options.devices)
    cluster.for_devices(devices)  # refuses more than there are
    return Run(
        lowered=lowered,
        cluster=cluster,
        devices=devices,
        estimators=estimators,
        options=options,
        notes=(*told, *notes, *assumed_kernels(lowered.workload.source, options), *((unused,) if unused else ())),
    )


# Lowered programs by content, the latest last: the same program on other hardware, or at another fidelity, starts from there.
_LOWERED: OrderedDict[tuple[object, ...], LoweredProgram] = OrderedDict()
KEPT_PROGRAMS = 32


def lowered_program(target: Target, options: Options, device: Device) -> LoweredProgram:
    """The kernels of a target on a kind of device; kept by the program's content and everything that shaped it."""
    program, mesh = captured(target, options, device)
    backend = backend_of(device)
    asked, lowering = options.asked_lowering, chosen_lowering(options, program, device)
    # The digest is the source's: a program that was partitioned, or put on another mesh, by hand still carries it.
    key = (
        program.sha256, program.mesh, program.module if program.partitioned else None, tuple((mesh or {}).items()),
        key_of(options.program), key_of(options.lowering), backend, registered_rules(), asked, lowering,
        device if lowering == "compiled" else None,
    )  # fmt: skip
    found = _LOWERED.pop(key, None)
    if found is None:
        read = ReadOptions(
            trip_counts=options.program.trip_counts,
            approximate=options.program.approximate,
            skew=options.program.indices.value,
        )
        refused, overflow = "", None
        if lowering == "compiled":
            try:
                found = lower_compiled(program, device, mesh=mesh, options=read)
            except OutOfMemoryError as error:
                refused, overflow = error.message, Overflow(demand=error.demand, bound=error.bound)
            except (UnsupportedError, UsageError) as error:  # loops may have other names and counts in XLA's program
                if asked == "compiled":
                    raise
                refused = f"{error.message}; the lowering is modelled instead"
        if found is None:
            local = partition(program, mesh=mesh, route=options.program.partitioner)
            workload = read_workload(local, read)
            kernels = lower(
                workload, backend=backend, given=lowering == "given", fusion=options.lowering.fusion,
                attention=options.lowering.attention_library, layers=options.lowering.layers, ragged=options.lowering.ragged,
            )  # fmt: skip
            found = _warned(kernels, refused)
            found = overlapped(replace(found, overflow=overflow), options.lowering.rewrites)
        if program.devices > 1 and may_deadlock(found.workload):
            check_program(program)
    _LOWERED[key] = found
    while len(_LOWERED) > KEPT_PROGRAMS:
        _LOWERED.popitem(last=False)
    own = {"name": program.name, "source": program.source, "facts": program.facts}  # equal programs may have others
    if not program.notes and all(getattr(found.workload, name) == value for name, value in own.items()):
        return found
    warnings = (*program.notes, *found.workload.warnings)
    return replace(found, workload=replace(found.workload, **own, warnings=warnings))  # type: ignore[arg-type]


def _warned(lowered: LoweredProgram, warning: str) -> LoweredProgram:
    if not warning:
        return lowered
    return replace(lowered, workload=replace(lowered.workload, warnings=(*lowered.workload.warnings, warning)))


def local_program(target: Target, options: Options) -> Program:
    """The program of one device: captured for the hardware's platform, over the mesh asked for, and partitioned."""
    target, options = resolved(target, options)
    program, mesh = captured(target, options, resolve(options.on).device)
    return partition(program, mesh=mesh, route=options.program.partitioner)


def captured(target: Target, options: Options, device: Device) -> tuple[Program, Mapping[str, int] | None]:
    """The program of a target, lowered for the device's platform, and the mesh sizes that are still to be overridden."""
    target, options = resolved(target, options)
    if is_pipeline(target):
        raise UsageError(
            "a pipeline has several programs",
            where=target.name if isinstance(target, Pipeline) else str(target),
            fix="name one of them, or use predict, show or compare",
        )
    program = load(
        target,
        CaptureOptions(
            platform=device.platform,
            dims=options.program.dims,
            mesh=options.program.mesh,
            settings=options.program.settings,
        ),
    )
    asked = options.program.mesh
    return program, asked if asked and dict(asked) != program.mesh.sizes else None
