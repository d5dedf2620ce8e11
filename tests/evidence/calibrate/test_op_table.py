"""`calibrate --from`: kernels of a table that somebody else measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshcast.base import InputError, UsageError
from meshcast.cli.app import run
from meshcast.estimate import given_kernels, reference_model
from meshcast.estimate.profiled.interpolator import reference_digest, shipped
from meshcast.evidence.calibrate.op_table import kernels_of_table, row_kernels
from meshcast.evidence.validate.ops.left_out import validate_left_out
from meshcast.evidence.validate.ops.rows import OpRow
from meshcast.hardware import load_device
from meshcast.options import Options

V6E = load_device("tpu-v6e")
HEADER = "id,source,chip,op,dtype,shape,time_us,notes\n"


def row(
    m: int, *, time_us: float | None = 10.0, op: str = "matmul", chip: str = "v6e", notes: str = "trust=A"
) -> OpRow:
    shape = {"M": str(m), "N": "1024", "K": "1024"} if op == "matmul" else {"elements": str(m)}
    return OpRow(id=f"{op}{m}", source="s", chip=chip, op=op, dtype="bf16", shape=shape, time_us=time_us, notes=notes)


def modelled_us(of: OpRow) -> float:
    """What the reference says of a row: its kernels' times, that the row's own time is shared out by."""
    (found,) = row_kernels(of, V6E)
    return 1e6 * float(reference_model(V6E, 0.0).estimate([found.kernel], V6E).time[0])


def test_a_rows_time_is_its_kernels() -> None:
    (found,) = row_kernels(row(256, time_us=12.5), V6E)
    assert found.seconds == pytest.approx(12.5e-6)
    assert found.program == "M=256;N=1024;K=1024"


def test_of_a_chain_what_a_step_repeats_is_learned() -> None:
    chained = row(2**20, op="add", time_us=2.0, notes="trust=A; device slope of chained scan (chain 64)")
    found = list(row_kernels(chained, V6E))
    assert sum(each.seconds for each in found) == pytest.approx(2e-6, rel=0.01)  # the counter is left out
    assert max(each.kernel.elements for each in found) == 2**20


def test_several_kernels_share_a_rows_ratio() -> None:
    norm = OpRow(
        id="norm",
        chip="v6e",
        op="layer_norm",
        dtype="bf16",
        shape={"dims": "64x1024x1024"},
        time_us=900.0,
        notes="trust=A",
    )
    found = list(row_kernels(norm, V6E))
    times = reference_model(V6E, 0.0).estimate([each.kernel for each in found], V6E).time
    ratios = [each.seconds / time for each, time in zip(found, times, strict=True)]
    assert len(found) > 1
    assert ratios == pytest.approx([ratios[0]] * len(found))


def test_what_is_between_rows_is_interpolated() -> None:
    """Rows that are all a third slower than the model make a kernel between them a third slower."""
    rows = [row(m, time_us=1e4) for m in (256, 512, 1024, 2048, 4096)]
    slow = [row(int(each.shape["M"]), time_us=modelled_us(each) * 4 / 3) for each in rows]
    judged = row(1536, time_us=modelled_us(row(1536, time_us=1e4)) * 4 / 3)
    (result,) = validate_left_out([judged], [*slow, judged], Options(fidelity="profiled", levers=False), "shape")
    assert result.row.predicted == pytest.approx(judged.time_us, rel=0.12)


def test_a_source_is_left_out_whole() -> None:
    alone = [row(m, time_us=10.0) for m in (256, 512)]
    results = list(validate_left_out(alone, alone, Options(fidelity="profiled", levers=False), "source"))
    assert [result.row.predicted for result in results] == pytest.approx(
        [modelled_us(each) for each in alone], rel=0.02
    )


def test_what_cannot_be_learned_from() -> None:
    with pytest.raises(UsageError, match="no row is of tpu-v6e"):
        kernels_of_table([row(8, chip="v4")], V6E, source="t")
    with pytest.raises(InputError, match="no positive, finite number") as refused:
        kernels_of_table([row(8), row(16, time_us=None), row(8, chip="v4", time_us=None)], V6E, source="t")
    assert refused.value.where == "t: row matmul16"
    declared = OpRow(
        id="p", chip="v6e", op="copy_hbm_to_cmem", dtype="bf16", shape={"layout": "bf16[512x512]", "bytes": "524288"},
        time_us=1.0, notes="trust=A",
    )  # fmt: skip
    with pytest.raises(InputError, match="no row has a program"):
        kernels_of_table([declared], V6E, source="t")
    taken = kernels_of_table([declared, row(8)], V6E, source="t")
    assert taken.rows == 1
    assert "hand-written" in taken.left_out["p"]


@pytest.mark.parametrize(
    ("by", "fidelity", "said"), [("rows", "profiled", "by 'rows'"), ("shape", "roofline", "learns")]
)
def test_leaving_out_needs_a_way_and_a_fidelity_that_learns(by: str, fidelity: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        list(validate_left_out([row(8)], [row(8)], Options(fidelity=fidelity, levers=False), by))


def table(path: Path, rows: int = 3) -> Path:
    lines = [f'r{m},s,v6e,matmul,bf16,M={256 * m};N=1024;K=1024,{4.0 * m},"trust=A"' for m in range(1, rows + 1)]
    path.write_text(HEADER + "\n".join(lines) + "\n")
    return path


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int | str | None, str]]:
    """Runs `meshcast calibrate` beside a table and gives its exit code and what it said."""
    table(tmp_path / "ops.csv")
    monkeypatch.chdir(tmp_path)

    def called(*arguments: str) -> tuple[int | str | None, str]:
        monkeypatch.setattr(sys, "argv", ["meshcast", "calibrate", *arguments])
        with pytest.raises(SystemExit) as left:
            run()
        said = capsys.readouterr()
        return left.value.code, said.err if left.value.code else said.out

    return called


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from", "ops.csv"], "--from needs a device"),
        (["--from", "ops.csv", "--on", "tpu-v6e", "--list"], "say what to do"),
        (["--profile", "--grade", "A"], "--grade is for --from"),
        (["--from", "ops.csv", "--on", "tpu-v4"], "no row is of tpu-v4"),
        (["--from", "ops.csv", "--on", "tpu-v6e", "--grade", "Z"], "no row has 'Z'"),
    ],
)
def test_what_the_command_refuses(
    arguments: list[str], said: str, tmp_path: Path, command: Callable[..., tuple[int | str | None, str]]
) -> None:
    code, told = command(*arguments)
    assert (code, said in told) == (2, True), told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ops.csv"]


@pytest.mark.parametrize("time", ["nan", "inf", "-3", "0", "fast", ""])
def test_a_time_that_is_none_is_refused_and_named(
    time: str, tmp_path: Path, command: Callable[..., tuple[int | str | None, str]]
) -> None:
    with (tmp_path / "ops.csv").open("a") as rows:
        rows.write(f"odd,s,v6e,matmul,bf16,M=64;N=64;K=64,{time},trust=A\n")
    for way in ("--from", "--systolic"):
        code, told = command(way, "ops.csv", "--on", "tpu-v6e")
        assert (code, "ops.csv:5: row odd: its time_us is no positive" in told) == (2, True), told


@pytest.mark.parametrize("time", [1.0, 0.001])
def test_times_below_the_speed_of_light_are_refused(
    time: float, tmp_path: Path, command: Callable[..., tuple[int | str | None, str]]
) -> None:
    """All rows the same impossible time, or one among good ones: either would be learned without a word."""
    table(tmp_path / "ops.csv", rows=8)
    with (tmp_path / "ops.csv").open("a") as rows:
        rows.write(f"odd,s,v6e,matmul,bf16,M=4096;N=4096;K=4096,{time},trust=A\n")
    code, told = command("--from", "ops.csv", "--on", "tpu-v6e")
    assert code == 2
    assert f"ops.csv:10: row odd: matmul of M=4096;N=4096;K=4096 (bf16) in {time:g} us is faster than tpu-v6e" in told
    assert "149.7 us" in told
    assert "take the row out of the table" in told
    assert not list(tmp_path.glob("*.npz"))


def test_one_bad_row_alone_says_why() -> None:
    odd = replace(row(8), shape={"M": "8", "N": "0", "K": "1024"})
    with pytest.raises(InputError, match=r"no row has a program .*; matmul8: N='0' is no positive whole number"):
        kernels_of_table([odd], V6E, source="t")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "r,s,v6e,matmul,bf16,M=64;N=64;K=64,1\n",
            "ops.csv:2: the row has 7 cells, the header 8: notes would be missing",
        ),
        (
            'r,s,v6e,matmul,bf16,M=64;N=64;K=64,1,"trust=A\n',
            "ops.csv:2: the row that begins here cannot be read: a quote",
        ),
        ("r,s,v6e,matmul,bf16,M=64;N=64;K=64,1,\n", "write trust=A into the notes of rows that are device times"),
    ],
)
def test_rows_that_are_cut_off_say_so(
    text: str, said: str, tmp_path: Path, command: Callable[..., tuple[int | str | None, str]]
) -> None:
    (tmp_path / "ops.csv").write_text(HEADER + text)
    code, told = command("--from", "ops.csv", "--on", "tpu-v6e")
    assert (code, said in told) == (2, True), told


def test_the_command(tmp_path: Path, command: Callable[..., tuple[int | str | None, str]]) -> None:
    code, told = command("--from", "ops.csv", "--on", "tpu-v6e", "--json")
    said: dict[str, Any] = json.loads(told)
    assert (code, said["rows"], said["families"]["gemm 16-bit"]["rows"]) == (0, 3, 3)
    made = given_kernels(tmp_path / said["file"], V6E)
    assert not made.notes
    assert made.interpolator.reference == reference_digest(V6E)


@pytest.mark.parametrize("name", ["tpu-v4", "tpu-v6e"])
def test_shipped_kernels_go_with_the_shipped_model(name: str) -> None:
    known = shipped(name)
    assert known is not None
    assert known.reference == reference_digest(load_device(name))


def test_a_family_of_too_few_rows_is_warned_of(command: Callable[..., tuple[int | str | None, str]]) -> None:
    table(Path("ops.csv"), rows=1)
    code, said = command("--from", "ops.csv", "--on", "tpu-v6e", "--json")
    assert code == 0
    assert "too few rows to judge" in json.loads(said)["warnings"][0]
