"""A recording as a program of PyTorch's own kernels, eager or compiled; free of torch."""

from __future__ import annotations

from meshcast.programs.pytorch.eager.allocator import eager_peak
from meshcast.programs.pytorch.eager.kernels import eager_launches
from meshcast.programs.pytorch.inductor.kernels import Compiled
from meshcast.programs.pytorch.launches.emission import stablehlo_of
from meshcast.programs.pytorch.launches.host_work import compiled_host, eager_host
from meshcast.programs.pytorch.launches.launch import Launch
from meshcast.programs.pytorch.recording.calls import Recording


def program_text(recording: Recording, *, compiled: bool) -> str:
    """A recording as a scheduled program of eager or compiled kernels."""
    if compiled:
        step = Compiled(recording)
        launches = step.launches()
        return stablehlo_of(recording, launches, memory=step.peak(), host=compiled_host(recording, launches))
    launches = eager_kernels(recording)
    return stablehlo_of(recording, launches, memory=eager_peak(recording), host=eager_host(recording, launches))


def eager_kernels(recording: Recording) -> list[Launch]:
    """The kernels that eager PyTorch launches for a recording, in order."""
    return [launch for number, op in enumerate(recording.ops) for launch in eager_launches(op, number)]
