"""Files: whole or as they were, whatever fails; names that stay in their folder."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from meshcast import predict
from meshcast.base.errors import InputError, OutputError, UsageError
from meshcast.base.files import (
    LONGEST_NAME,
    append_whole,
    check_place,
    check_prefix,
    file_name,
    json_value,
    names_taken,
    write_whole,
)
from meshcast.estimate.measurements.file import ProfileHeader, write_rows
from meshcast.estimate.profiled import sources
from meshcast.estimate.profiled.interpolator import Interpolator
from meshcast.evidence.comparison import compare
from meshcast.evidence.comparison.folder import RunFolder
from meshcast.evidence.fits.tpu_samples import SampleTable, write_table
from meshcast.hardware import load_device
from tests.cli.conftest import Meshcast
from tests.cli.conftest import meshcast as meshcast

TANH = Path(__file__).parents[1] / "fixtures/tanh.mlir"
PACKAGE = Path(__file__).parents[2] / "src/meshcast"
OLD = b"the earlier result"
HEADER = ProfileHeader(device="h200", kind="H200", backend="cuda", suite=1, jax="0", jaxlib="0")
NO_KERNELS = Interpolator(device="h200", reference="", families={})
WRITERS: dict[str, Callable[[Path], None]] = {
    "text": lambda path: write_whole(path, "the new result"),
    "bytes": lambda path: write_whole(path, b"the new result"),
    "kernels": NO_KERNELS.save,
    "samples": lambda path: write_table(path, SampleTable(samples=(), compilers={})),
    "profile": lambda path: write_rows(path, HEADER, []),
}


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes a byte of every file."""

    def full(path: Path, content: str | bytes, **more: str) -> int:
        with path.open("wb") as file:
            file.write(b"x")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setattr(Path, "write_text", full)


@pytest.mark.parametrize("kind", [kind for kind in WRITERS if kind != "profile"])  # which opens its file
@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_destroys_no_earlier_result(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "result"
    with path.open("wb") as file:
        file.write(OLD)
    with pytest.raises(OutputError, match="No space left on device") as caught:
        WRITERS[kind](path)
    assert caught.value.where == str(path)
    assert path.read_bytes() == OLD
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", WRITERS)
def test_files_are_written_whole_into_folders_that_are_not_there_yet(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a/b/result"
    for _ in range(2):
        WRITERS[kind](path)
        assert list(path.parent.iterdir()) == [path]


def test_the_tables_of_a_comparison_stay_when_the_next_ones_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    comparison = compare([TANH], on="h200", fidelities=["roofline"], folder=tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}
    assert len(before) == 5
    request.getfixturevalue("full_disk")
    with pytest.raises(OutputError, match=r"table\.json"):
        RunFolder(path=tmp_path / "run").write(comparison)
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()} == before


def test_what_cannot_be_added_leaves_the_file_as_long_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "grows"
    append_whole(path, b"one\n")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left"):
        append_whole(path, b"two\n")
    assert path.read_bytes() == b"one\n"


def test_links_and_rights_stay(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(OLD)
    target.chmod(0o600)
    link.symlink_to(target)
    write_whole(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", WRITERS)
def test_files_are_written_through_links_also_those_that_lead_to_nothing_yet(tmp_path: Path, kind: str) -> None:
    link = tmp_path / "link"
    link.symlink_to("elsewhere/target")
    check_place(link, where="-o")
    for _ in range(2):
        WRITERS[kind](link)
        assert link.is_symlink()
        assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["target"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "link"]


def test_devices_are_written_to_and_folders_refused(tmp_path: Path) -> None:
    write_whole(Path("/dev/null"), "new")
    assert not Path("/dev/null").is_file()
    with pytest.raises(UsageError, match="Is a directory"):
        write_whole(tmp_path, "new")


# Where files are written to a temporary folder, to the place that `whole_files` gave, or appended to a journal line by line, the
# last of which may be cut off and is mended (`explore/store.py`).
STAGED_OR_TEMPORARY = {
    "base/files.py", "base/cache.py", "traces/chakra.py", "traces/writers.py", "evidence/comparison/folder.py",
    "network/astra/files.py", "network/astra/outside.py", "estimate/outside/runs.py", "estimate/outside/_zigzag_process.py",
    "partition/xla_spmd.py", "explore/store.py", "serve/searches.py", "traces/synthetic/trace_files.py",
    "traces/synthetic/suites.py", "traces/recorded/files.py", "traces/recorded/sharing.py", "estimate/outside/zigzag_cells.py",
    "estimate/outside/llmcompass.py", "estimate/outside/_llmcompass_process.py",
}  # fmt: skip


def test_every_file_is_written_beside_its_place() -> None:
    writes = re.compile(r"\.write_(text|bytes)\(|open\([^)]*[\"'][wax]b?\+?[\"']")
    found = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if writes.search(path.read_text())}
    assert found <= STAGED_OR_TEMPORARY


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("h200", "h200"),
        ("../../evil", "evil"),
        ("/etc/passwd", "etc-passwd"),
        ("..", "unnamed"),
        ("", "unnamed"),
        ("a b\0c", "a-b-c"),
        ("step.v2+x_y-z", "step.v2+x_y-z"),
    ],
)
def test_names_stay_in_their_folder(text: str, name: str) -> None:
    assert file_name(text) == name


def test_long_names_are_cut_and_stay_apart() -> None:
    first, second = (file_name("a" * 300 + end) for end in "bc")
    assert first != second
    assert len(first) < LONGEST_NAME + 10


@pytest.mark.parametrize("prefix", [".", "..", "/", "a/.."])
def test_a_prefix_is_a_name(prefix: str) -> None:
    with pytest.raises(UsageError, match="folder and has no name"):
        check_prefix(Path(prefix), where="-o")


def test_names_that_are_too_long_are_the_users_mistake() -> None:
    with pytest.raises(InputError, match="File name too long") as caught:
        predict("a" * 300)
    assert caught.value.where == f"{'a' * 60}... (300 characters)"
    with pytest.raises(FileNotFoundError), names_taken():
        Path("nowhere").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("predict", "a" * 300), "File name too long"),
        (("trace", str(TANH), "--on", "h200", "--format", "perfetto", "-o", "a" * 300), "File name too long"),
        (("trace", str(TANH), "--on", "h200", "--format", "chakra", "-o", "."), "folder and has no name"),
        (("compare", str(TANH), "--on", "h200", "-o", "a" * 300), "File name too long"),
    ],
)
def test_the_command_says_so(meshcast: Meshcast, arguments: tuple[str, ...], words: str) -> None:
    answer = meshcast(*arguments, "--json")
    assert answer.code == 2
    assert words in answer.lines[-1]["error"]["message"]
    assert not any(Path().iterdir())


@pytest.mark.parametrize(
    ("text", "says", "where"),
    [
        ('{"a": 1,\n "b', "is not JSON: Unterminated string, the file may have been cut off", "f:2:2"),
        ('{"a": ', "is not JSON: Expecting value, the file may have been cut off", "f:1:7"),
        ("{'a': 1}", "is not JSON: Expecting property name enclosed in double quotes", "f:1:2"),
    ],
)
def test_json_that_is_none_is_told_in_whole_sentences(text: str, says: str, where: str) -> None:
    with pytest.raises(InputError) as caught:
        json_value(text, where="f")
    assert (caught.value.message, caught.value.where) == (says, where)
    assert caught.value.fix


def test_a_full_disk_behind_the_output_is_no_bug(meshcast: Meshcast, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("meshcast.cli.app._stop_writing", lambda: None)
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout.write", full)
        answer = meshcast("predict", str(TANH), "--on", "h200", "--json")
    assert answer.code == OutputError.exit_code
    assert "standard output: cannot be written: No space left on device" in answer.err


def test_a_device_of_any_name_keeps_to_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a/b/cache"))
    kept: list[Path] = []
    monkeypatch.setattr(sources, "keep", lambda path, data: kept.append(path))
    monkeypatch.setattr(sources, "build_interpolator", lambda *given: NO_KERNELS)
    sources._fitted(b"", replace(load_device("h200"), name="../../../../evil"), list, "test")
    assert kept[0].parent == tmp_path / "a/b/cache/meshcast" / sources.FOLDER
