"""What the host costs a run: the seconds in which it issues a step, and the pauses between launches outside of CUDA graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshcast.simulate import LOOSE_GAP, WHOLE_PROGRAM_LAUNCHES, host_seconds, loose_launches

if TYPE_CHECKING:
    from meshcast.jobs.program.run import Run


def issuing_seconds(run: Run) -> float:
    """Seconds that the host needs to issue a step, 0 where it is not counted.

    It is not for models that know no launches (the speed of light), and unless told otherwise for programs of a few
    kernels, which are taken for a part of a larger program. Of one that launches nothing it is all there is.
    """
    count, first = run.lowered.kernel_count, run.estimators[0].fidelity
    launches = run.device.kind == "gpu" and (run.full_clock.gap > 0 if count else first != "roofline")
    whole = run.options.run.host == "on" or count >= WHOLE_PROGRAM_LAUNCHES or not count
    costs = run.options.run.host_costs
    return host_seconds(run.lowered, costs) if launches and whole and run.options.run.host != "off" else 0.0


def pausing_seconds(run: Run) -> float:
    """Seconds between launches outside of CUDA graphs."""
    if not run.host:
        return 0.0
    graphs = run.options.run.host_costs is None or run.options.run.host_costs.graphs
    return loose_launches(run.lowered.schedule, graphs=graphs) * LOOSE_GAP * run.device.launch_latency_s
