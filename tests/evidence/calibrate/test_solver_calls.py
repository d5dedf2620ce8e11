"""Calls of a table as measured kernels: single routines, by the device's time."""

from __future__ import annotations

import pytest

from meshcast.evidence.calibrate.collect import main
from meshcast.evidence.calibrate.solver_calls import solver_rows
from meshcast.hardware import load_device
from meshcast.lower import KernelKind
from meshcast.workload import Factorisation

HEAD = "op,dtype,batch,m,n,k,busy_us,wall_us,kernels"
LINES = [
    HEAD,
    "lu,f32,8,64,64,0,90.0,120.0,9",
    "triangular,c64,1,256,256,16,40.0,60.0,3",
    "svd,f32,1,64,64,0,752.5,1083.4,125",  # asks its host
    "qr,f32,1,64,64,0,175.8,222.5,39",
]
H200 = load_device("h200")


def test_calls_are_rows_and_those_that_wait_for_the_host_are_passed_over() -> None:
    lu, triangular, qr, q = solver_rows(LINES, H200)
    assert (lu.seconds, lu.common, lu.kernel.kind) == (pytest.approx(90e-6), True, KernelKind.SOLVER)
    assert lu.kernel.geometry == Factorisation(routine="lu", batch=8, rows=64, columns=64)
    assert lu.kernel.read_bytes == lu.kernel.written_bytes == 8 * 64 * 64 * 4
    assert lu.kernel.vector_flops == pytest.approx(8 * 2 / 3 * 64**3, rel=0.02)
    assert triangular.kernel.geometry == Factorisation(routine="triangular", batch=1, rows=256, columns=256, right=16)
    assert (
        triangular.kernel.vector_flops == 4 * 2.0 * 256**2 * 16
    )  # a complex multiplication and addition are four of each
    assert (qr.seconds + q.seconds, qr.program) == (pytest.approx(175.8e-6), q.program)  # shared out by the model
    assert [row.kernel.geometry.routine for row in (qr, q) if isinstance(row.kernel.geometry, Factorisation)] == [
        "qr",
        "q",
    ]


def test_another_table_is_refused_with_what_it_lacks(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    path = f"{tmp_path}/other.csv"
    with open(path, "w") as file:
        file.write("op,batch\nlu,1\n")
    assert main([f"{tmp_path}/out.npz", "--on", "h200", "--solvers", path]) == 2
    assert "no table of solvers' calls" in capsys.readouterr().err
