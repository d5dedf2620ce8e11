"""What is refused of a table of runs: columns and ids that are there twice, columns that are misspelt, counts without end."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshcast.base.errors import InputError
from meshcast.evidence.validate.runs.comparison import chosen_runs
from meshcast.evidence.validate.runs.rows import COLUMNS, read_run_rows

HEADER = "id,device,devices,model,step_time_s"
ROW = "a,h100-sxm,8,llama3-8b,1.5"


def written(folder: Path, *lines: str) -> Path:
    path = folder / "runs.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("gbs,gbs", "the column gbs is there 2 times (as columns 6, 7)"),
        ("gbbs,seq", "no column 'gbbs' is known, did you mean 'gbs'?"),
        ("fdsp,seq", "no column 'fdsp' is known, did you mean 'fsdp'?"),
        ("GBS,seq", "no column 'GBS' is known, did you mean 'gbs'?"),
    ],
)
def test_a_column_twice_or_misspelt_is_refused(tmp_path: Path, more: str, says: str) -> None:
    path = written(tmp_path, f"{HEADER},{more}", f"{ROW},16,32")
    with pytest.raises(InputError) as caught:
        read_run_rows(path)
    assert (caught.value.message, caught.value.where, caught.value.exit_code) == (says, f"{path}:1", 2)
    assert caught.value.fix


def test_other_columns_stay_allowed(tmp_path: Path) -> None:
    path = written(tmp_path, f"{HEADER},document,hsdp,remark,tokens_per_s,model_id,,", f"{ROW},x,2,y,3,4,,")
    assert len(read_run_rows(path)) == 1


def test_every_known_column_is_read(tmp_path: Path) -> None:
    assert len(read_run_rows(written(tmp_path, ",".join(COLUMNS), ROW))) == 1


def test_two_rows_of_one_id_are_refused_with_both_lines(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, ROW, ROW.replace("a,", "b,", 1), ROW)
    with pytest.raises(InputError, match="two rows have the id 'a': lines 2 and 4") as caught:
        read_run_rows(path)
    assert caught.value.where == f"{path}:4"


def test_a_count_without_end_fails_the_row_as_it_does_in_a_job(tmp_path: Path) -> None:
    huge = ROW.replace("8,llama", "1e300,llama")
    (row,) = read_run_rows(written(tmp_path, HEADER, huge))
    assert row.unread == ("a whole number of at least 1, up to 2,147,483,648, for devices: line 2 has '1e300'",)


@pytest.mark.parametrize("pattern", ["^prec$", "^h100-sxm$", "^llama3-8b$", "^https://x.org/y$"])
def test_a_pattern_is_searched_in_each_cell_apart(tmp_path: Path, pattern: str) -> None:
    path = written(
        tmp_path,
        f"{HEADER},source_url",
        "prec,a100-sxm-40gb,8,mixtral-8x7b,1,",
        f"{ROW},https://x.org/y",
        "prec-2,a100-sxm-40gb,8,gpt2,1,",
    )
    found = [row.id for row in chosen_runs(read_run_rows(path), only=pattern, limit=None)]
    assert found == (["prec"] if pattern == "^prec$" else ["a"])
