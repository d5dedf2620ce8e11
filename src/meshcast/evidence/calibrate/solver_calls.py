"""Measured kernels from a table of dense solvers' calls (`data/measured/h200-solvers`).

A call of two routines, a QR with its Q, is shared out among them by the reference model, as other tables of ops are.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping

from meshcast.estimate import InterpolatorRow, reference_model
from meshcast.hardware import Device
from meshcast.lower import Kernel, KernelKind
from meshcast.workload import SOLVER_COUNTS, Factorisation, Routine, element_bytes, real_factor

SOLVER_DTYPES: Mapping[str, str] = {"f32": "f32", "f64": "f64", "c64": "complex<f32>"}
# Operations of the table whose launches are all of their time, as routines; products of others (`solve`) are passed over.
_CALLED: Mapping[str, tuple[Routine, ...]] = {
    "cholesky": ("cholesky",),
    "lu": ("lu",),
    "q": ("q",),
    "qr": ("qr", "q"),
    "qr_r": ("qr",),
    "triangular": ("triangular",),
}


def solver_rows(lines: Iterable[str], device: Device) -> Iterator[InterpolatorRow]:
    """The calls of a table with the columns op, dtype, batch, m, n, k and busy_us, measured on a device."""
    model = reference_model(device, 0.0)
    for cells in csv.DictReader(lines):
        sizes = (int(cells["batch"]), int(cells["m"]), int(cells["n"]), int(cells["k"]))
        kernels = [_kernel(routine, SOLVER_DTYPES[cells["dtype"]], *sizes) for routine in _CALLED.get(cells["op"], ())]
        if not kernels:
            continue
        times = model.estimate(kernels, device).time
        name = " ".join(cells[key] for key in ("op", "dtype", "batch", "m", "n", "k"))
        for kernel, share in zip(kernels, times / times.sum(), strict=True):
            seconds = float(cells["busy_us"]) * 1e-6 * float(share)
            yield InterpolatorRow(kernel=kernel, seconds=seconds, program=name, common=True)


def _kernel(routine: Routine, dtype: str, batch: int, m: int, n: int, k: int) -> Kernel:
    right = k if routine == "triangular" else 0
    flops = 2.0 * n * n * right if routine == "triangular" else SOLVER_COUNTS[routine](m, n)
    return Kernel(
        name="",
        kind=KernelKind.SOLVER,
        dtype=dtype,
        vector_flops=batch * flops * real_factor(dtype),
        read_bytes=round(batch * n * (m + right) * element_bytes(dtype)),
        written_bytes=round(batch * n * (right or m) * element_bytes(dtype)),
        geometry=Factorisation(routine=routine, batch=batch, rows=m, columns=n, right=right),
    )
