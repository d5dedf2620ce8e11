"""What a run takes more that begins with the device at rest: the host's lead, which runs back to back hide.

A measurement averages n runs that are issued back to back and waited for at the end. The device idles until the host has issued
what runs first, so that such an average is

    wall = step + lead / n,    lead = standstill + cold * (run + argument * arguments + output * outputs + first)

with the costs of `simulate.host`; `first` is what the first launch takes the host, or the first CUDA graph, which is launched
whole. `standstill` is what being waited for costs (the wait's end is noticed, threads are woken), `cold` how much longer the host
takes for a run that follows a wait than for one among many. Where the host bounds the step, the step has this issue once already.

On an H200, 53 programs (`docs/accuracy-wild.md` has where they are from) show both: those of a few kernels have a lead of 0.5 ms
whatever they do, and training steps of hundreds of arrays and a thousand kernels in a graph, averaged over two runs, one of 2 to
12 ms, twice what the host needs to issue them. With both, busy time tells their wall time to 3.1 % instead of 5.7 %.
"""

from __future__ import annotations

from meshcast.lower import LoweredProgram
from meshcast.simulate.host import HostCosts, called_seconds, until_first_launch

STANDSTILL_S = 0.5e-3
COLD = 2.0


def lead_seconds(lowered: LoweredProgram, costs: HostCosts | None = None, *, host_bound: bool = False) -> float:
    """Seconds that the first of several runs takes longer, with the device at rest before it.

    Args:
        lowered: The program.
        costs: The host's.
        host_bound: Whether issuing a step takes longer than running it.
    """
    costs = costs or HostCosts()
    issued = called_seconds(lowered.schedule, costs) + until_first_launch(lowered.schedule, costs)
    return STANDSTILL_S + (COLD - host_bound) * issued
