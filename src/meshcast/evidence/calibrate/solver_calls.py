"""Measured kernels from a table of dense solvers' calls (`data/measured/h200-solvers`): those of one routine each."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping

from meshcast.estimate import HOST_WAITS, InterpolatorRow
from meshcast.lower import Kernel, KernelKind
from meshcast.workload import SOLVER_COUNTS, Factorisation, Routine, element_bytes, real_factor

SOLVER_DTYPES: Mapping[str, str] = {"f32": "f32", "f64": "f64", "c64": "complex<f32>"}
# Operations of the table that are a single call of a routine whose launches are all of its time.
_SINGLE: Mapping[str, Routine] = {
    "cholesky": "cholesky",
    "lu": "lu",
    "q": "q",
    "qr_r": "qr",
    "triangular": "triangular",
}


def solver_rows(lines: Iterable[str]) -> Iterator[InterpolatorRow]:
    """The calls of a table with the columns op, dtype, batch, m, n, k and busy_us; others than single ones are passed over."""
    for cells in csv.DictReader(lines):
        routine = _SINGLE.get(cells["op"])
        if routine is None or routine in HOST_WAITS:
            continue
        dtype = SOLVER_DTYPES[cells["dtype"]]
        batch, m, n, k = (int(cells[name]) for name in ("batch", "m", "n", "k"))
        right = k if routine == "triangular" else 0
        flops = 2.0 * n * n * right if routine == "triangular" else SOLVER_COUNTS[routine](m, n)
        kernel = Kernel(
            name="",
            kind=KernelKind.SOLVER,
            dtype=dtype,
            vector_flops=batch * flops * real_factor(dtype),
            read_bytes=batch * n * (m + right) * element_bytes(dtype),
            written_bytes=batch * n * (right or m) * element_bytes(dtype),
            geometry=Factorisation(routine=routine, batch=batch, rows=m, columns=n, right=right),
        )
        name = f"{cells['op']} {cells['dtype']} {batch} x {m} x {n}, {k}"
        yield InterpolatorRow(kernel=kernel, seconds=float(cells["busy_us"]) * 1e-6, program=name, common=True)
