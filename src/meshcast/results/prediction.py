"""`Prediction`: the answer, with its parts, its origin and what would change it; JSON as the contract says."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from meshcast.results.communication import Communication
from meshcast.results.inputs import Inputs
from meshcast.results.pipelined import PipelineShare
from meshcast.results.serving import Serving
from meshcast.results.throughput import Throughput
from meshcast.results.trust import Trust
from meshcast.simulate import Breakdown, MemoryUse, Timeline

SCHEMA = "meshcast.prediction/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A change that was predicted where something does not fit: what makes it, and what is needed with it.

    Attributes:
        change: What it is, in words.
        flag: What makes it on the command line, in place of the same flags where they are there already.
        demand: Of the resource, with it.
        fits: Whether that is enough.
    """

    change: str
    flag: str
    demand: float
    fits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasible:
    """Why a program cannot run as asked: what it needs, what there is, and what would close the gap.

    `levers` say in words what takes most of it; `fixes` are changes that were predicted, those that are enough first.
    """

    resource: str
    demand: float
    bound: float
    levers: tuple[str, ...]
    fixes: tuple[Fix, ...] = ()

    @property
    def gap(self) -> float:
        """How much is missing."""
        return self.demand - self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """A change that was predicted.

    Attributes:
        change: What it is, in words.
        flag: What makes it on the command line, in place of the same flag (of `--set` the same name) where that is there already.
        step_time_s: The step with it.
        request_time_s: A whole request with it, from prompt to last token; None where no requests are answered.
        saved_s: Seconds that the same work takes less, of the step or, where requests are answered, of a request.
        saved_share: Likewise as a share: `1 - t' / t`, of a step or, where throughput is known, of the time of a token, image
            or sample.
        throughput_per_s: Tokens, images or samples a second with it; None of programs.
    """

    change: str
    flag: str = ""
    step_time_s: float
    saved_s: float
    saved_share: float = 0.0
    throughput_per_s: float | None = None
    request_time_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelShare:
    """Kernels of one kind and shape, with their share of the step."""

    name: str
    count: int
    seconds: float
    limited_by: str
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveShare:
    """Collectives of one kind over one group."""

    kind: str
    group: str
    group_size: int
    count: int
    bytes_sent: float
    seconds: float
    algorithm: str
    level: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankShare:
    """Ranks that behave alike, where not all do: how long they compute, and wait for slower ones at collectives."""

    first_device: int
    devices: int
    speed: float
    busy_s: float
    waiting_s: float


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
    """How a program will run. FLOPs, bytes, memory and energy are per device and step."""

    name: str
    sha256: str
    devices: int
    mesh: dict[str, int]
    device: str
    cluster: str | None
    fidelity: str
    network: str
    infeasible: Infeasible | None
    step_time_s: float | None
    interval_s: tuple[float, float] | None
    breakdown: Breakdown | None
    flops: float
    hbm_bytes: float
    communication_bytes: float
    memory: MemoryUse
    capacity_bytes: int
    energy_j: float | None
    mfu: float | None
    hfu: float | None
    kernels: int
    communication_s: float | None
    provenance: Provenance
    lowering: str = "modelled"  # or `compiled`, by the real compiler; or `given`, as the program came
    levers: tuple[Lever, ...] = ()
    top_kernels: tuple[KernelShare, ...] = field(default=(), repr=False)
    collectives: tuple[CollectiveShare, ...] = field(default=(), repr=False)
    communication: Communication | None = field(default=None, repr=False)
    timeline: Timeline | None = field(default=None, repr=False, compare=False)
    pipeline: PipelineShare | None = None
    serving: Serving | None = None  # of models that answer token by token
    model_flops: float | None = None  # matrix FLOPs of the model alone, none recomputed or repeated
    matrix_types: tuple[str, ...] = field(default=(), repr=False)  # catalogue's, of the peak that MFU is relative to
    facts: tuple[tuple[str, str], ...] = field(
        default=(), repr=False
    )  # of the program's capture, told among the inputs
    inputs: Inputs | None = field(default=None, repr=False)
    throughput: Throughput | None = None  # of models, whose batches are known
    trust: Trust | None = None  # of whole steps
    ranks: tuple[RankShare, ...] = ()
    warnings: tuple[str, ...] = ()
    version: str = ""
    seconds: float = 0.0

    @property
    def feasible(self) -> bool:
        """Whether it can run at all."""
        return self.infeasible is None

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
            "network": self.network,
            "feasible": self.feasible,
            "infeasible": problem,
            "step_time_s": self.step_time_s,
            "step_time_interval_s": list(self.interval_s) if self.interval_s else None,
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
            "mfu": self.mfu,
            "hfu": self.hfu,
            "kernels": self.kernels,
            "model_flops": self.model_flops,
            "model_flops_per_device_s": self.model_flops_per_device_s,
            "inputs": self.inputs.to_json() if self.inputs is not None else None,
            "throughput": self.throughput.to_json() if self.throughput is not None else None,
            "levers": [asdict(lever) for lever in self.levers],
            "top_kernels": [asdict(share) for share in self.top_kernels],
            "collectives": [asdict(share) for share in self.collectives],
            **(self.communication.to_json() if self.communication is not None else {}),
            **({"ranks": [asdict(share) for share in self.ranks]} if self.ranks else {}),
            **({"pipeline": self.pipeline.to_json()} if self.pipeline else {}),
            **({"serving": self.serving.to_json()} if self.serving else {}),
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
