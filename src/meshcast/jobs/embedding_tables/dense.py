"""The dense part of a recommender beside its tables: seconds of its passes on one device, and the bytes of its gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax

from meshcast.base import InfeasibleError, UsageError, format_bytes
from meshcast.jobs import predict
from meshcast.jobs.embedding_tables.issued import EagerDense, eager_dense, eager_step
from meshcast.jobs.embedding_tables.table_launches import fused_launches
from meshcast.options import Options
from meshcast.programs import capture
from meshcast.results import Prediction
from meshcast.simulate import call_costs
from meshcast.zoo import DenseLayers, SequenceLayers, dense_programs, sequence_programs

# Precisions of the dense layers, by every name that people write.
PRECISIONS = {
    "float32": ("fp32", "f32"),
    "tf32": ("tensorfloat32",),
    "bfloat16": ("bf16",),
    "float16": ("fp16", "f16", "half"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DensePart:
    """Layers that every rank has: the bottom ones, which need no table, and the interaction and the layers above it.

    Attributes:
        bottom_forward_s: Seconds of the bottom layers forwards.
        forward_s: Seconds of the rest forwards.
        backward_s: Seconds of the rest backwards.
        bottom_backward_s: Seconds of the bottom layers backwards.
        optimizer_s: Seconds of its optimizer.
        host_s: Seconds in which the host issues a step, with its tables.
        gradient_bytes: Bytes that are all-reduced.
        memory_bytes: Bytes of its parameters, gradients, optimizer state and what is kept between the passes.
        flops: That it computes.
        hbm_bytes: That its kernels move.
        kernels: Launches of a step, with those of the tables.
        profiled: Whether its times come from measured kernels.
    """

    bottom_forward_s: float = 0.0
    forward_s: float = 0.0
    backward_s: float = 0.0
    bottom_backward_s: float = 0.0
    optimizer_s: float = 0.0
    host_s: float = 0.0
    gradient_bytes: float = 0.0
    memory_bytes: float = 0.0
    flops: float = 0.0
    hbm_bytes: float = 0.0
    kernels: int = 0
    profiled: bool = False

    @property
    def seconds(self) -> float:
        """Seconds of all of it on the device."""
        passes = self.bottom_forward_s + self.forward_s + self.backward_s + self.bottom_backward_s
        return passes + self.optimizer_s


def dense_part(
    layers: DenseLayers | SequenceLayers,
    on: str,
    batch: int,
    *,
    dtype: str = "float32",
    stack: str = "pytorch-eager",
    host: str = "slow",
) -> DensePart:
    """The dense part of a recommender with so many samples a device.

    By `pytorch-eager` its launches are those of eager PyTorch (`dense_calls`), and the host's time that of all of them and of
    the tables' own. By any other stack parts are differences of whole programs' time on the device, each predicted as any
    program is: the bottom layers alone, all layers forwards, and with their gradients; the optimizer is what training has
    beyond these. Sequence models are always predicted so: their kernels are fused.

    Raises:
        InfeasibleError: It does not fit into the device's memory.
    """
    dtype = precision_named(dtype)
    gradients = 4.0 * sum(math.prod(each.shape) for each in jax.tree.leaves(layers.shapes("float32")))
    if isinstance(layers, SequenceLayers):
        if dtype not in ("bfloat16", "float16"):
            raise UsageError(
                f"fused attention in {dtype}", where="--precision", fix="bf16 or fp16, as its kernels are written for"
            )
        programs = sequence_programs(layers, batch, dtype)
    elif stack == "pytorch-eager":
        return _eager_part(eager_dense(layers, on, batch, dtype), gradients, host)
    else:
        programs = dense_programs(layers, batch, "float32" if dtype == "tf32" else dtype)
    options = Options(on=on, lowering="modelled", levers=False)
    found = {
        name: predict(capture(function, *args, name=f"dense-{name}"), options, stack=stack)
        for name, (function, args) in programs.items()
    }
    bottom, below, forward, step, train = (
        _busy(found[name], batch) if name in found else 0.0
        for name in ("bottom", "bottom_step", "forward", "step", "train")
    )
    whole = found["train"]
    return DensePart(
        bottom_forward_s=bottom,
        forward_s=max(0.0, forward - bottom),
        backward_s=max(0.0, step - forward - (below - bottom)),
        bottom_backward_s=max(0.0, below - bottom),
        optimizer_s=max(0.0, train - step),
        host_s=(whole.step_time_s or 0.0) if train < 0.95 * (whole.step_time_s or 0.0) else 0.0,
        gradient_bytes=gradients,
        memory_bytes=float(whole.memory.peak),
        flops=whole.flops,
        hbm_bytes=whole.hbm_bytes,
        kernels=whole.kernels,
        profiled=whole.fidelity == "profiled",
    )


def precision_named(text: str, where: str = "--precision") -> str:
    """The full name of a precision.

    Raises:
        UsageError: There is no such precision.
    """
    word = text.strip().lower()
    for name, short in PRECISIONS.items():
        if word == name or word in short:
            return name
    raise UsageError(
        f"no precision {text!r}", where=where,
        fix="one of " + ", ".join("/".join((name, *short[:1])) for name, short in PRECISIONS.items()),
    )  # fmt: skip


def _eager_part(dense: EagerDense, gradients: float, host: str) -> DensePart:
    launches = dense.with_tables(list(fused_launches()))
    return DensePart(
        bottom_forward_s=dense.seconds("bottom"),
        forward_s=dense.seconds("look_up") + dense.seconds("above"),
        backward_s=dense.seconds("loss") + dense.seconds("backward") + dense.seconds("update"),
        bottom_backward_s=dense.seconds("bottom_backward"),
        optimizer_s=dense.seconds("optimizer"),
        host_s=0.0 if host == "off" else eager_step(launches, call_costs(host)).host_s,
        gradient_bytes=gradients,
        memory_bytes=dense.memory_bytes,
        flops=dense.flops,
        hbm_bytes=dense.hbm_bytes,
        kernels=len(launches),
        profiled=dense.profiled,
    )


def _busy(prediction: Prediction, batch: int) -> float:
    """Seconds in which the device is at work."""
    if prediction.step_time_s is None or prediction.breakdown is None:
        raise InfeasibleError(
            f"the dense layers take {format_bytes(prediction.memory.peak)} with {batch:,} samples a device", where="--batch",
            fix="give fewer samples a device",
        )  # fmt: skip
    return prediction.step_time_s - prediction.breakdown.idle
