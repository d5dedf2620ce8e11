"""Dense solvers on TPUs: XLA has no library there and expands them into loops over columns, or into rotations.

    t = s step + F / peak

`s` turns follow each other, a few small kernels each (a reflector or pivot, and the update of a panel), and take `step`
however small the matrix is; F runs on the vector units beside them. A factorisation turns once a column; a triangular solve
inverts all of its diagonal blocks of 128 columns at once, then goes block by block; symmetric eigenvalues go through `SWEEPS`
sweeps of Jacobi's rotations, n - 1 rounds each. After XLA's `cholesky_expander`, `triangular_solve_expander`, `qr_expander` and
`eigh_expander`. Nothing of this was measured: `step` is four launches of a loop body, and the interval says as much.
"""

from __future__ import annotations

from meshcast.estimate.explanation import Term
from meshcast.estimate.rates import vector_rate
from meshcast.estimate.tpu.machine import TimedWork, TpuMachine
from meshcast.lower import Kernel
from meshcast.workload import Factorisation

STEP_S = 8e-6  # four kernels of 2 us
SWEEPS = 10
BLOCK = 128
INTERVAL = (0.2, 5.0)
CAVEAT = "dense solvers on TPUs are loops that were not measured: their times are within a factor of five at best"


def turns(shape: Factorisation) -> int:
    """Turns of loops that follow each other."""
    columns = min(shape.rows, shape.columns)
    if shape.routine == "triangular":
        return min(columns, BLOCK) + -(-columns // BLOCK)
    if shape.routine in ("eigh", "svd", "svd-qr", "eig"):
        return SWEEPS * max(0, columns - 1)
    return columns


def solver(kernel: Kernel, machine: TpuMachine) -> TimedWork:
    """A dense solver's call."""
    shape = kernel.geometry
    assert isinstance(shape, Factorisation)
    steps = turns(shape)
    chain, updates = steps * STEP_S, kernel.vector_flops / vector_rate(kernel.dtype, machine.device)
    return TimedWork(
        time=chain + updates,
        compute=updates,
        fixed=chain,
        formula="t = s step + F/peak",
        terms=(
            Term("turns of loops", "s", steps),
            Term("a turn", "step", STEP_S, "s"),
            Term("arithmetic", "F/peak", updates, "s"),
        )
        if machine.explaining
        else (),
    )
