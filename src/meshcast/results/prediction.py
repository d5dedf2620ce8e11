"""`Prediction`: the answer, with its parts, its origin and what would change it; JSON as the contract says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from meshcast.results.changes import WhatIf
from meshcast.results.communication import Communication
from meshcast.results.infeasible import Infeasible
from meshcast.results.inputs import Inputs
from meshcast.results.loops import DataLoops
from meshcast.results.lowered_by import CompiledBy
from meshcast.results.pipelined import PipelineShare
from meshcast.results.serving import Serving
from meshcast.results.throughput import Throughput
from meshcast.results.timed import CollectiveShare, KernelShare, Lever, RankShare, Timed
from meshcast.results.trust import Trust
from meshcast.simulate import Breakdown, MemoryUse, Timeline

SCHEMA = "meshcast.prediction/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Shares of the step time by origin; they add up to 1."""

    measured: float = 0.0
    interpolated: float = 0.0
    extrapolated: float = 0.0
    analytical: float = 0.0
    simulated: float = 0.0
    guessed: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """How a program will run. FLOPs, bytes and memory are per device and step.

    What is there only where it can run is in `timed`; the same names on the prediction itself are for readers, and are None, or
    empty, where it cannot.

    Attributes:
        name: What was predicted.
        sha256: Digest of the program.
        devices: How many run it.
        mesh: Their axes.
        device: What each of them is.
        cluster: What they are a part of; None of one device.
        fidelity: Where most of the computing time comes from, or would.
        network: The model that collectives are timed by.
        infeasible: Why it cannot run; None where it can.
        flops: All of them, as the program has them.
        hbm_bytes: What compute kernels move.
        communication_bytes: What collectives send.
        memory: What a device must hold.
        capacity_bytes: What it can hold.
        kernels: Launches.
        provenance: Shares of the time by origin.
        timed: Times and what follows from them; None where it cannot run.
        lowering: `modelled`; `compiled`, by the real compiler; or `given`, as the program came.
        compiler: Who compiled it, and how long that took; None where nobody did.
        pipeline: Of pipelines, a row for each stage.
        serving: Of models that answer token by token.
        loops: Of programs with loops that end on data.
        facts: The facts of the program's capture, told among the inputs.
        inputs: Everything that shaped it.
        throughput: Of models, whose batches are known.
        what_ifs: The same on changed hardware, as it was asked for.
        trust: Of whole steps.
        warnings: Sentences.
        version: Of meshcast.
        seconds: That the answer took.
    """

    name: str
    sha256: str
    devices: int
    mesh: dict[str, int]
    device: str
    cluster: str | None
    fidelity: str
    network: str
    infeasible: Infeasible | None
    flops: float
    hbm_bytes: float
    communication_bytes: float
    memory: MemoryUse
    capacity_bytes: int
    kernels: int
    provenance: Provenance
    timed: Timed | None = None
    lowering: str = "modelled"
    compiler: CompiledBy | None = None
    pipeline: PipelineShare | None = None
    serving: Serving | None = None
    loops: DataLoops | None = None
    facts: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    inputs: Inputs | None = field(default=None, repr=False)
    throughput: Throughput | None = None
    what_ifs: tuple[WhatIf, ...] = ()
    trust: Trust | None = None
    warnings: tuple[str, ...] = ()
    version: str = ""
    seconds: float = 0.0

    @property
    def feasible(self) -> bool:
        """Whether it can run at all."""
        return self.infeasible is None

    @property
    def step_time_s(self) -> float | None:
        """Seconds of a step."""
        return self.timed.step_time_s if self.timed is not None else None

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """The lower and the upper end of the step."""
        return self.timed.interval_s if self.timed is not None else None

    @property
    def lead_s(self) -> float | None:
        """What a step takes more that begins with the device at rest; see `Timed`."""
        return self.timed.lead_s if self.timed is not None else None

    @property
    def breakdown(self) -> Breakdown | None:
        """Where the step's time goes."""
        return self.timed.breakdown if self.timed is not None else None

    @property
    def communication_s(self) -> float | None:
        """Seconds of all collectives, exposed or not."""
        return self.timed.communication_s if self.timed is not None else None

    @property
    def energy_by_part(self) -> Mapping[str, float]:
        """See `Timed`."""
        return self.timed.energy_by_part if self.timed is not None else {}

    @property
    def energy_j(self) -> float | None:
        """Joules of a step and device."""
        return self.timed.energy_j if self.timed is not None else None

    @property
    def mfu(self) -> float | None:
        """The model's share of the peak FLOP/s."""
        return self.timed.mfu if self.timed is not None else None

    @property
    def hfu(self) -> float | None:
        """The hardware's share of the peak FLOP/s."""
        return self.timed.hfu if self.timed is not None else None

    @property
    def model_flops(self) -> float | None:
        """Matrix FLOPs of the model alone."""
        return self.timed.model_flops if self.timed is not None else None

    @property
    def matrix_types(self) -> tuple[str, ...]:
        """Types of the peak that `mfu` is relative to."""
        return self.timed.matrix_types if self.timed is not None else ()

    @property
    def top_kernels(self) -> tuple[KernelShare, ...]:
        """The kernels that take longest."""
        return self.timed.top_kernels if self.timed is not None else ()

    @property
    def collectives(self) -> tuple[CollectiveShare, ...]:
        """Collectives by kind and group."""
        return self.timed.collectives if self.timed is not None else ()

    @property
    def communication(self) -> Communication | None:
        """Communication by group and link."""
        return self.timed.communication if self.timed is not None else None

    @property
    def ranks(self) -> tuple[RankShare, ...]:
        """Ranks that behave alike, where not all do."""
        return self.timed.ranks if self.timed is not None else ()

    @property
    def timeline(self) -> Timeline | None:
        """When everything runs on one rank."""
        return self.timed.timeline if self.timed is not None else None

    @property
    def levers(self) -> tuple[Lever, ...]:
        """Changes that were predicted."""
        return self.timed.levers if self.timed is not None else ()

    @property
    def model_flops_per_device_s(self) -> float | None:
        """FLOP/s of the model on each device; None where it is not known."""
        return self.model_flops / self.step_time_s if self.model_flops is not None and self.step_time_s else None

    def to_json(self) -> dict[str, Any]:
        """The contract's object."""
        problem = None
        if self.infeasible is not None:
            problem = {**asdict(self.infeasible), "levers": list(self.infeasible.levers), "gap": self.infeasible.gap}
        return {
            "schema": SCHEMA,
            "target": {"name": self.name, "sha256": self.sha256, "devices": self.devices, "mesh": self.mesh},
            "on": {"device": self.device, "cluster": self.cluster},
            "fidelity": self.fidelity,
            "lowering": self.lowering,
            **({"compiler": asdict(self.compiler)} if self.compiler is not None else {}),
            "network": self.network,
            "feasible": self.feasible,
            "infeasible": problem,
            "step_time_s": self.step_time_s,
            "step_time_interval_s": list(self.interval_s) if self.interval_s else None,
            **({"lead_s": self.lead_s} if self.lead_s else {}),
            "breakdown_s": asdict(self.breakdown) if self.breakdown else None,
            "flops": self.flops,
            "hbm_bytes": self.hbm_bytes,
            "communication_bytes": self.communication_bytes,
            "communication_s": self.communication_s,
            "memory_bytes": {
                **{
                    part: getattr(self.memory, part) if self.memory.known else None
                    for part in ("peak", "arguments", "outputs", "temporaries", "aliased")
                },
                "capacity": self.capacity_bytes,
                "by_role": self.memory.by_role,
            },
            "energy_j": self.energy_j,
            **({"energy_by_part_j": dict(self.energy_by_part)} if self.energy_by_part else {}),
            "mfu": self.mfu,
            "hfu": self.hfu,
            "kernels": self.kernels,
            "model_flops": self.model_flops,
            "model_flops_per_device_s": self.model_flops_per_device_s,
            "inputs": self.inputs.to_json() if self.inputs is not None else None,
            "throughput": self.throughput.to_json() if self.throughput is not None else None,
            "levers": [asdict(lever) for lever in self.levers],
            **({"what_if": [asdict(each) for each in self.what_ifs]} if self.what_ifs else {}),
            "top_kernels": [asdict(share) for share in self.top_kernels],
            "collectives": [asdict(share) for share in self.collectives],
            **(self.communication.to_json() if self.communication is not None else {}),
            **({"ranks": [asdict(share) for share in self.ranks]} if self.ranks else {}),
            **({"pipeline": self.pipeline.to_json()} if self.pipeline else {}),
            **({"serving": self.serving.to_json()} if self.serving else {}),
            **(self.loops.to_json() if self.loops is not None else {}),
            "provenance": asdict(self.provenance),
            "trust": self.trust.to_json() if self.trust is not None else None,
            "warnings": list(self.warnings),
            "tool": {"version": self.version, "seconds": self.seconds},
        }

    def __str__(self) -> str:
        from meshcast.results.printer import prediction_text

        return prediction_text(self)

    def _repr_html_(self) -> str:
        from meshcast.results.printer import prediction_html

        return prediction_html(self)
