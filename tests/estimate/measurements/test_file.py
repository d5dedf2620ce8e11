from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from meshcast.base.errors import InputError, UsageError
from meshcast.estimate.measurements.file import SCHEMA, ProfileHeader, ProfileJournal, read_rows, write_rows

HEADER = ProfileHeader(device="h200", kind="NVIDIA H200", backend="gpu", suite=1, jax="0.11.2", jaxlib="0.11.2")
ROWS = [{"id": f"gemm:m={i}", "family": "gemm", "busy_us": 1.5} for i in range(3)]


@pytest.mark.parametrize("name", ["a.profile.jsonl", "a.profile.jsonl.gz"])
def test_what_is_written_is_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / "new" / name
    write_rows(path, HEADER, ROWS)
    assert read_rows(path) == (HEADER, ROWS)
    assert [p.name for p in path.parent.iterdir()] == [name]  # no temporary file stays
    data = gzip.decompress(path.read_bytes()) if name.endswith("gz") else path.read_bytes()
    assert json.loads(data.splitlines()[0])["schema"] == SCHEMA


def test_a_torn_line_is_dropped_and_the_file_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.profile.jsonl.gz"
    ProfileJournal(path, HEADER).append(ROWS[:2])
    growing = tmp_path / "a.profile.jsonl"
    with growing.open("a") as file:
        file.write('{"id": "gemm:m=2", "fam')
    journal = ProfileJournal(path, HEADER)
    assert journal.rows == ROWS[:2]
    journal.append(ROWS[2:])
    journal.finish()
    assert read_rows(path) == (HEADER, ROWS)
    assert sorted(p.name for p in tmp_path.iterdir()) == [path.name]


def test_a_finished_file_is_taken_up(tmp_path: Path) -> None:
    path = tmp_path / "a.profile.jsonl.gz"
    write_rows(path, HEADER, ROWS[:1])
    journal = ProfileJournal(path, replace(HEADER, date="2026-01-02"))
    assert journal.rows == ROWS[:1]


def test_another_device_or_software_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.profile.jsonl.gz"
    write_rows(path, HEADER, ROWS)
    with pytest.raises(UsageError, match=r"jax is '0.11.2' there and '0.12' here"):
        ProfileJournal(path, replace(HEADER, jax="0.12"))
    assert read_rows(path) == (HEADER, ROWS)


def test_the_probe_in_which_processes_die_is_found(tmp_path: Path) -> None:
    """A process dies in a batch of three; they are suspects. The next dies in one of them: that one has its row."""
    path = tmp_path / "a.profile.jsonl.gz"
    ids = [str(row["id"]) for row in ROWS]
    ProfileJournal(path, HEADER).attempt(ids)
    second = ProfileJournal(path, HEADER)
    assert second.suspects == set(ids)
    second.attempt([ids[1]])
    third = ProfileJournal(path, HEADER)
    assert third.suspects == {ids[0], ids[2]}
    assert third.rows == [{"id": ids[1], "family": "gemm", "error": "the process ended in it"}]
    third.attempt(())
    third.append([ROWS[0]])
    assert ProfileJournal(path, HEADER).suspects == {ids[2]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty"),
        ('{"schema": "meshcast.profile/1"', "torn"),
        ("no json\n", "not JSON"),
        ('{"schema": "meshcast.prediction/1"}\n', "meshcast.prediction/1"),
        ("[1]\n", "not a profile"),
        ('{"schema": "meshcast.profile/1"}\n', "incomplete"),
        (json.dumps(HEADER.to_json()) + '\n{"family": "gemm"}\n', "without an id"),
    ],
)
def test_what_is_no_profile(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "x.profile.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        read_rows(path)


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_rows(tmp_path / "none.gz")
    cut = tmp_path / "cut.profile.jsonl.gz"
    write_rows(cut, HEADER, ROWS)
    cut.write_bytes(cut.read_bytes()[:-12])
    with pytest.raises(InputError, match="cut off or damaged"):
        read_rows(cut)
    with pytest.raises(UsageError, match="cannot be written"):
        write_rows(tmp_path / "cut.profile.jsonl.gz" / "b", HEADER, ROWS)
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="cannot be written"):
        write_rows(tmp_path / "folder", HEADER, ROWS)
    assert not list(tmp_path.glob("*.part")) + list(tmp_path.glob(".*"))  # nothing is left of it
