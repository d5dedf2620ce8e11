"""Times of measured programs, taken back to the full clock."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from meshcast.estimate import MeasuredProgram
from meshcast.evidence.calibrate import measured
from meshcast.evidence.calibrate.measured import at_full_clock, chosen_by_tuning, collect_program
from meshcast.hardware import load_device
from meshcast.lower import Kernel, KernelKind
from meshcast.workload import Factorisation, Routine
from tests.estimate.conformance import gemm, pass_over

H200 = load_device("h200")
PRODUCT, STREAM = gemm(8192, 8192, 8192), pass_over(2**32, 2**20)


def test_a_capped_programs_products_are_kept_as_the_full_clock_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 0.8 of the clock arithmetic takes 1 / 0.8 as long; what waits for memory takes no longer."""
    monkeypatch.setattr(measured, "settled_clock", lambda *_: 0.8)
    found = at_full_clock([(PRODUCT, 1.25e-3), (STREAM, 1e-3)], [(PRODUCT, 1), (STREAM, 1)], H200)
    assert [seconds for _, seconds in found] == pytest.approx([1e-3, 1e-3], rel=2e-3)


def test_only_what_the_cap_slows_is_changed() -> None:
    """Products alone run at 0.87 of the clock before the limiter has settled; a stream stays below the cap."""
    ((_, seconds),) = at_full_clock([(PRODUCT, 1.5e-3)], [(PRODUCT, 100)], H200)
    assert seconds == pytest.approx(0.87 * 1.5e-3, rel=0.03)
    assert list(at_full_clock([(STREAM, 1e-3)], [(STREAM, 100)], H200)) == [(STREAM, pytest.approx(1e-3))]


def test_products_by_the_library_alone_are_no_example_where_xla_chooses_otherwise() -> None:
    """Of f32 a third faster by Triton's kernels; of two bytes the library's are chosen either way."""
    assert chosen_by_tuning(gemm(512, 512, 512, dtype="f32"))
    assert not chosen_by_tuning(PRODUCT)
    assert not chosen_by_tuning(STREAM)


@pytest.mark.parametrize(("routine", "kept"), [("qr", 1), ("svd", 0), ("eigh", 0)])
def test_a_solver_that_asks_its_host_on_the_way_is_not_told_by_its_launches(
    routine: Routine, kept: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A randomised SVD's last step: launches of 2.1 ms in the 5.3 ms that its caller waited, on an H200."""
    shape = Factorisation(routine=routine, batch=1, rows=64, columns=4096)
    call = Kernel(name="call", kind=KernelKind.SOLVER, dtype="f32", read_bytes=2**20, geometry=shape)
    launch = {"hlo_op": "call", "kernel": "gebd2", "count": 1, "us": 2106.0}
    program = MeasuredProgram(
        id="one", group="reduce", path=tmp_path, busy_us=2106.0, wall_us=5300.0, memory_bytes=None, energy=None,
        launches=(launch,),
    )  # fmt: skip
    lowered = SimpleNamespace(schedule=SimpleNamespace(walk=lambda: iter([(call, 1)])))
    for name, value in {"load": None, "partition": None, "read_workload": None, "lower": lowered}.items():
        monkeypatch.setattr(measured, name, lambda *_, value=value, **__: value)
    assert len(collect_program(program, H200).rows) == kept
