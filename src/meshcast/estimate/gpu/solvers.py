"""Dense solvers on GPUs: a chain of column steps that nothing hides, and the arithmetic beside it.

    t = passes (fixed + s step + c byte + work F / peak)

A factorisation goes column by column, s = min(m, n) of them, and each waits for the one before: `step` is what a step takes
however short its column is, `byte` what passing a byte of it through the few cores that hold a panel takes, c = s max(m, n)
bytes an element being all that passes. The blocked updates, F, take `work` times what they would at the vector units' peak.
A library has several ways, and a set of these for each (`path`):

- `looped`: one matrix after the other, `passes` is the batch;
- `batched`: a matrix for each of the S cores; `passes` is 1 for fixed and step, and bytes and FLOPs count max(1, batch / S)
  times, the FLOPs at one core's share of the peak;
- `vector`: a triangular solve for one right-hand side; `small`: Jacobi's rotations inside one core, up to 32 columns.

Which way a size takes is what JAX's and NVIDIA's libraries do: batched LU and QR where the side over the batch is at most 128
(`jaxlib/gpu/solver_kernels_ffi.cc`), the batched product of reflectors up to 128, batched SVD and Jacobi's symmetric
eigenvalues up to 32. SVD and eigenvalue solvers ask on the host whether they have converged: their times are those that a
caller waits, kernels and host together; of others the device's alone.

The parameters are fitted to an H200 (`data/measured/h200-solvers`, `solver_fit`); on other GPUs all but peaks scales with the
clock. After the same decomposition of one-sided factorisations into panels and updates in Dongarra et al., "The Impact of
Multicore on Math Software" (2006).
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from meshcast.estimate.calibration import WIDENING
from meshcast.estimate.gpu.machine import GpuMachine, GpuWork
from meshcast.estimate.rates import vector_rate
from meshcast.hardware import Device
from meshcast.lower import Kernel
from meshcast.workload import Factorisation, Routine, element_bytes

BATCHED_UP_TO = {"q": 128, "svd": 32}
# JAX asks for the batched routine while the side over the batch is at most this.
SIDE_PER_MATRIX = {"lu": 128, "qr": 128}
SMALL = 32  # columns up to which one core rotates a whole symmetric matrix
# Solvers that ask on the host whether they have converged: a caller waits for longer than their launches run.
HOST_WAITS: frozenset[Routine] = frozenset({"svd", "svd-qr", "eigh", "eig"})
UNMEASURED = (0.3, 3.5)  # interval on GPUs that no solver was measured on
UNMEASURED_MAKER = (0.15, 6.0)  # and on those of other makers, whose libraries are others
_SCHEMA = "meshcast.solvers/1"


@dataclass(frozen=True, slots=True)
class Costs:
    """The calibrated costs of one implementation of a solver routine."""

    fixed: float  # seconds
    step: float  # seconds a column
    byte: float  # seconds a byte
    work: float  # over the time that the vector units' peak would take


@dataclass(frozen=True, slots=True)
class Solvers:
    """The fitted costs by routine and path, where they were measured, and how far off they are."""

    device: str
    clock_hz: float
    interval: tuple[float, float]
    costs: Mapping[str, Costs]


@functools.cache
def shipped_solvers() -> Solvers:
    """The parameters that come with the package."""
    return parse_solvers(files("meshcast.estimate").joinpath("data/solvers.toml").read_text())


def parse_solvers(text: str) -> Solvers:
    """The parameters of a file of this schema."""
    data = tomllib.loads(text)
    if data.get("schema") != _SCHEMA:
        raise ValueError(f"schema {data.get('schema')!r} is not {_SCHEMA}")
    low, high = data["interval"]
    costs = {path: Costs(**numbers) for path, numbers in data["costs"].items()}
    return Solvers(data["device"], float(data["clock_hz"]), (float(low), float(high)), costs)


def waits_for_host(kernel: Kernel) -> bool:
    """Whether a kernel is a solver's call that comes back to the host on its way, so that its launches tell no time of it."""
    return isinstance(kernel.geometry, Factorisation) and kernel.geometry.routine in HOST_WAITS


def solver_path(shape: Factorisation) -> str:
    """The way that a library takes: `lu batched`, `eigh small`."""
    longest = max(shape.rows, shape.columns)
    if shape.routine == "eigh" and longest <= SMALL:
        return "eigh small batched" if shape.batch > 1 else "eigh small"
    if shape.routine == "triangular" and shape.batch == 1 and shape.right == 1:
        return "triangular vector"
    always = shape.routine in ("cholesky", "eigh", "triangular")
    many = longest // shape.batch <= SIDE_PER_MATRIX.get(shape.routine, -1)
    if shape.batch > 1 and (always or many or longest <= BATCHED_UP_TO.get(shape.routine, 0)):
        return f"{shape.routine} batched"
    return f"{shape.routine} looped"


@dataclass(frozen=True, slots=True)
class SolverAmounts:
    """How often each of a path's costs counts; `peak` is the time of its FLOPs at the peak."""

    fixed: float
    steps: float
    bytes: float
    peak: float


def solver_amounts(shape: Factorisation, flops: float, dtype: str, device: Device) -> SolverAmounts:
    """How often each cost of its path a solver call pays; `flops` are those of the whole batch."""
    steps = min(shape.rows, shape.columns)
    passed = steps * max(shape.rows, shape.columns) * element_bytes(dtype)
    peak = flops / vector_rate(dtype, device)
    if not solver_path(shape).endswith("batched"):
        return SolverAmounts(shape.batch, shape.batch * steps, shape.batch * passed, peak)
    waves = max(1.0, shape.batch / device.cores)
    return SolverAmounts(1.0, steps, waves * passed, waves * peak / shape.batch * device.cores)


def solver(kernel: Kernel, machine: GpuMachine) -> GpuWork:
    """A dense solver's call."""
    shape = kernel.geometry
    assert isinstance(shape, Factorisation)
    known = shipped_solvers()
    costs = known.costs[solver_path(shape)]
    found = solver_amounts(shape, kernel.vector_flops, kernel.dtype, machine.device)
    slower = known.clock_hz / machine.clock
    chain = slower * (found.fixed * costs.fixed + found.steps * costs.step + found.bytes * costs.byte)
    updates = found.peak * costs.work / machine.boost
    return GpuWork(
        time=machine.launch + chain + updates,
        compute=updates,
        fixed=machine.launch + chain,  # steps that wait for each other keep no engine busy
        dram_bytes=kernel.read_bytes + kernel.written_bytes,
        instructions=kernel.vector_flops,
        formula="t = launch + passes fixed + s step + c byte + work F/peak",
        terms=machine.named(
            ("matrices, one after the other", "passes", found.fixed, ""),
            ("what each takes at least", "fixed", slower * costs.fixed, "s"),
            ("column steps of all passes", "s", found.steps, ""),
            ("a step", "step", slower * costs.step, "s"),
            ("bytes of columns that pass through panels", "c", found.bytes, "B"),
            ("a byte", "byte", slower * costs.byte, "s/B"),
            ("fixed, steps and bytes", "chain = passes fixed + s step + c byte", chain, "s"),
            ("blocked updates at the vector units' peak", "F/peak", found.peak / machine.boost, "s"),
            ("their time over that", "work", costs.work, ""),
            ("launch", "launch", machine.launch, "s"),
        ),
    )


def solver_interval(device: Device) -> tuple[float, float]:
    """Factors around a solver's time: as far as shapes left out of the fit were off, wider where nothing was measured."""
    known = shipped_solvers()
    if device.name == known.device:
        low, high = known.interval
        return low**WIDENING, high**WIDENING
    return UNMEASURED if device.vendor.lower() == "nvidia" else UNMEASURED_MAKER


def solver_caveat(device: Device) -> str:
    """What users are told of a solver's time on a GPU; nothing where solvers were measured on it."""
    known = shipped_solvers()
    if device.name == known.device:
        return ""
    times = solver_interval(device)[1]
    return f"dense solvers are timed as measured on {known.device}, by the clock of {device.name}: up to {times:g} times as long"
