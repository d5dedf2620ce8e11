"""Programs and kernels put on chosen hardware by hand: what the methods `Program.on` and `LoweredProgram.on` do."""

from __future__ import annotations

from collections.abc import Mapping

from meshcast.base import UsageError
from meshcast.hardware import Cluster, Device, resolve
from meshcast.jobs.planned.stacked import assumed_kernels, chosen_options
from meshcast.jobs.program.device_count import device_count
from meshcast.jobs.program.run import Run
from meshcast.lower import LoweredProgram, backend_of, overlapped
from meshcast.options import Options, chosen_estimators, option_places
from meshcast.programs import Program

# Settings of lowering that kernels which are there already can still be rewritten by.
REWRITES = ("overlap",)


def program_on(
    program: Program, hardware: str | Device | Cluster, options: Options | None, overrides: Mapping[str, object]
) -> Run:
    """A program partitioned, read and lowered for chosen hardware."""
    from meshcast.jobs.front import prepare  # which needs this package

    return prepare(program, chosen_options(options, {**overrides, "on": hardware}, where="Program.on"))


def lowered_on(
    lowered: LoweredProgram, hardware: str | Device | Cluster, options: Options | None, overrides: Mapping[str, object]
) -> Run:
    """Kernels that are there already on chosen hardware, with the rewrites that `overlap` asks for.

    Raises:
        UsageError: A setting concerns a stage that is done, the kernels are those of another kind of device, or the program
            is sharded over another number of devices; or a compiler's kernels are asked for, and these are modelled.
    """
    chosen = chosen_options(options, {**overrides, "on": hardware}, where="LoweredProgram.on")
    for name in sorted(chosen.differing):
        place = option_places().get(name)
        if place is not None and place.part in ("program", "lowering") and name not in REWRITES:
            raise UsageError(
                f"the program is lowered already, and {name} concerns a stage before that",
                where=name,
                fix="give it to that stage (Program.partition, Program.workload, Workload.lower), or to Program.on",
            )
    cluster = resolve(chosen.on)
    if lowered.backend not in (backend_of(cluster.device), "none"):
        raise UsageError(
            f"the kernels are those of {lowered.backend}, and {cluster.device.name} runs those of {backend_of(cluster.device)}",
            where=cluster.device.name,
            fix=f'lower the workload for it: workload.lower(backend="{backend_of(cluster.device)}")',
        )
    if chosen.asked_lowering == "compiled" and lowered.lowering == "modelled":
        raise UsageError(
            "the kernels are modelled by rules, and the fidelity 'compiled' is about those of a compiler",
            where="fidelity",
            fix='use another fidelity, or give the program itself to it: program.on(..., fidelity="compiled")',
        )
    estimators, told = chosen_estimators(chosen, cluster.device)
    chosen.check_choices()
    devices, notes = device_count(lowered.workload, chosen.devices)
    cluster.for_devices(devices)  # refuses more than there are
    return Run(
        lowered=overlapped(lowered, chosen.lowering.rewrites),
        cluster=cluster,
        devices=devices,
        estimators=estimators,
        options=chosen,
        notes=(*told, *notes, *assumed_kernels(lowered.workload.source, chosen.brought)),
    )
