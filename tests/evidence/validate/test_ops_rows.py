"""Rows of measured ops: what the notes say, which rows are asked for, and files that are none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshcast.base.errors import InputError, UnsupportedError, UsageError
from meshcast.evidence.validate.ops.rows import OpRow, RowChoice, chosen_rows, device_of, read_op_rows

HEADER = "id,source,chip,op,dtype,shape,time_us,notes\n"


def row(notes: str = "", chip: str = "v6e", op: str = "add", **shape: str) -> OpRow:
    return OpRow(id="row", chip=chip, op=op, dtype="bf16", shape=shape, time_us=1.0, notes=notes)


@pytest.mark.parametrize(
    ("notes", "grade", "method", "trips"),
    [
        ("trust=A; device time per step = slope of chained lax.scan (chain 16 vs 32)", "A", "chain, slope", 32),
        ("FLAG X; trust=A; device slope of chained scan (chain 4096); vmem_resident=1", "A", "chain, slope", 4096),
        ("trust=C; chain 8 wall/8, includes ~15 us/step", "C", "chain, host wall", 8),
        ("trust=B; wall median of chain 8 / 8", "B", "chain, host wall", 8),
        ("trust=C; per op = (75-op chain p50 0.8 ms - control)/75", "C", "chain, host wall", 75),
        ("trust=C; single-call host wall median of 20", "C", "host wall", 1),
        ("trust=A; XProf device time of Pallas kernel; wall slope per step 213 us", "A", "device time", 1),
        ("trust=B; XProf device time; weights prefetched to VMEM by async copy", "B", "weights prefetched", 1),
        ("trust=A; JAX profiler device time; median of 20 whole jit programs", "A", "whole program", 1),
        ("", "-", "unstated", 1),
        ("trust=B; profile reading 3.1 ms", "B", "unstated", 1),
    ],
)
def test_notes_say_how_a_figure_was_taken(notes: str, grade: str, method: str, trips: int) -> None:
    found = row(notes)
    assert (found.grade, found.method, found.trips) == (grade, method, trips)


@pytest.mark.parametrize(
    ("dtype", "stated", "element"),
    [("", "unstated", "bf16"), ("unknown", "unstated", "bf16"), ("int8", "int8", "i8"), (" BF16 ", "BF16", "bf16")],
)
def test_types_that_a_row_does_not_state_are_called_so(dtype: str, stated: str, element: str) -> None:
    found = replace(row(), dtype=dtype)
    assert (found.stated_dtype, found.element) == (stated, element)


def test_tensors_of_rows() -> None:
    assert row(dims="8x128").dims() == (8, 128)
    assert row(layout="f16[4x5]", bytes="40").dims() == (4, 5)
    assert row(elements="77", rank="1").dims() == (77,)
    assert row(M="3").number("M", "rows") == 3
    for shape in ({"dims": "8x"}, {"elements": "-1"}, {"elements": "1e6"}, {}):
        with pytest.raises(InputError):
            row(**shape).dims()


def test_chips_are_devices_of_the_catalogue() -> None:
    names = {chip: device_of(row(chip=chip)) for chip in ("v4(inferred)", "v5e", "v5p", "v6e", "tpu7x")}
    assert names == {
        "v4(inferred)": "tpu-v4", "v5e": "tpu-v5e", "v5p": "tpu-v5p", "v6e": "tpu-v6e", "tpu7x": "tpu-v7-core",
    }  # fmt: skip
    with pytest.raises(UnsupportedError, match="v1"):
        device_of(row(chip="v1"))


def test_choices(tmp_path: Path) -> None:
    lines = [f"r{n},s,v6e,{'add' if n % 2 else 'tanh'},bf16,elements=8,1.0,trust={'AB'[n % 2]}" for n in range(20)]
    file = tmp_path / "ops.csv"
    file.write_text(HEADER + "\n".join([*lines, "x,s,v4(inferred),add,f16,elements=8,,trust=A"]) + "\n")
    rows = read_op_rows(file)
    assert len(rows) == 21
    assert rows[-1].time_us is None
    assert [r.id for r in chosen_rows(rows, RowChoice(chips=["v4"]))] == ["x"]
    assert {r.op for r in chosen_rows(rows, RowChoice(ops=["tanh"], grades=["A"]))} == {"tanh"}
    assert [r.id for r in chosen_rows(rows, RowChoice(sample=2, chips=["v6e"]))] == ["r4", "r14", "r5", "r15"]
    assert len(chosen_rows(rows, RowChoice(limit=3))) == 3
    for choice in (RowChoice(chips=["v9"]), RowChoice(ops=["addd"]), RowChoice(grades=["Z"])):
        with pytest.raises(UsageError):
            chosen_rows(rows, choice)


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "no column"), ("id,chip,op\n", "no column dtype, shape, time_us"), (HEADER, "no rows")],
)
def test_files_that_are_none(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "ops.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        read_op_rows(file)
    with pytest.raises(InputError, match="cannot be read"):
        read_op_rows(tmp_path / "none.csv")
