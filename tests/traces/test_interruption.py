"""Signals, full disks and places that take no files: an export is there whole, or an earlier one as it was."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from meshcast.base.child import child_environment
from meshcast.base.errors import OutputError, UsageError
from meshcast.base.files import check_folder, check_place, whole_file, whole_files
from meshcast.base.interruption import InterruptedCommand, held
from meshcast.traces.writers import write_all

PROGRAM = Path(__file__).parents[1] / "fixtures" / "tanh.mlir"  # of one device: no process of Shardy is started for it
EARLIER = {"job.0.et": "old", "job.9.et": "older", "job.manifest.json": "{}", "job.json": "old", "job.mlir": "old"}
OUT = {"chakra": "job", "perfetto": "job.pftrace", "kineto": "job.json", "stablehlo": "job.mlir"}
MOMENTS = [
    ("chakra", "meshcast.traces.formats:job_trace", "SIGTERM"),
    ("chakra", "meshcast.traces.writers:_write_whole", "SIGINT"),  # in a thread that writes
    ("chakra", "os:rename", "SIGHUP"),  # when files are moved to their places
    ("perfetto", "meshcast.traces.perfetto:laned~", "SIGINT"),
    ("kineto", "meshcast.traces.kineto:laned", "SIGTERM"),
    ("stablehlo", "meshcast.traces.formats:predict_job", "SIGINT"),  # the file is written, and not yet in its place
]


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(errors="replace") if path.is_file() else "a folder" for path in folder.iterdir()}


def with_earlier(folder: Path) -> None:
    for name, text in EARLIER.items():
        (folder / name).write_text(text)


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    returncode: int
    stdout: str
    stderr: str


Interrupted = Callable[..., Ended]


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interrupted]:
    """Commands that get a signal at a moment: processes of their own, of one that has everything imported."""
    said = tmp_path_factory.mktemp("said")
    script = Path(__file__).with_name("interrupted_process.py")
    process = subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=child_environment()
    )
    assert process.stdin is not None
    assert process.stdout is not None
    asking, answering = process.stdin, process.stdout

    def run(folder: Path, form: str, moment: str, name: str, *more: str) -> Ended:
        out, err = said / f"{folder.name}.out", said / f"{folder.name}.err"
        asked = ["trace", str(PROGRAM), "--on", "h200", "--format", form, "-o", str(folder / OUT[form]), *more]
        print(json.dumps([str(out), str(err), moment, name, *asked]), file=asking, flush=True)
        late = threading.Timer(120, process.kill)
        late.start()
        code = answering.readline()
        late.cancel()
        return Ended(int(code), out.read_text(), err.read_text())

    yield run
    asking.close()
    answering.close()
    process.wait(timeout=20)


@pytest.mark.parametrize(("form", "moment", "name"), MOMENTS)
def test_a_signal_leaves_the_earlier_export(
    tmp_path: Path, interrupted: Interrupted, form: str, moment: str, name: str
) -> None:
    if form == "perfetto" and importlib.util.find_spec("perfetto") is None:
        pytest.skip("the package perfetto is not installed")
    with_earlier(tmp_path)
    ended = interrupted(tmp_path, form, moment, name)
    assert ended.returncode == 128 + getattr(signal, name)
    said = "interrupted" if name == "SIGINT" else f"ended by {name}"
    assert [line for line in ended.stderr.splitlines() if not line.startswith("writing")] == [f"meshcast: {said}"]
    assert ended.stdout == ""
    assert contents(tmp_path) == EARLIER


@pytest.mark.parametrize("moment", ["shutil:rmtree", "meshcast.traces.formats:Written"])
def test_a_signal_when_all_is_written_comes_too_late(tmp_path: Path, interrupted: Interrupted, moment: str) -> None:
    with_earlier(tmp_path)
    ended = interrupted(tmp_path, "chakra", moment, "SIGINT")
    assert ended.returncode == 0
    assert "ASTRA-sim takes" in ended.stdout
    found = contents(tmp_path)
    assert found.keys() & {"job.0.et", "job.9.et"} == {"job.0.et"}
    assert found["job.manifest.json"] != "{}"


def test_a_signal_as_json(tmp_path: Path, interrupted: Interrupted) -> None:
    ended = interrupted(tmp_path, "kineto", "meshcast.traces.formats:_timeline", "SIGINT", "--json")
    assert ended.stdout == '{"error": {"code": "interrupted", "message": "interrupted", "where": null, "fix": null}}\n'
    assert list(tmp_path.iterdir()) == []


def put(folder: Path, names: str, without: str) -> None:
    with whole_files(folder / names[0]) as staged:
        staged.without(folder / without)
        for name in names:
            staged.path(folder / name).write_text("new")


def test_files_come_back_where_one_cannot_be_moved(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "gone").write_text("old")
    (tmp_path / "c").mkdir()
    with pytest.raises(UsageError, match="Is a directory"):
        put(tmp_path, "abcd", without="gone")
    assert contents(tmp_path) == {"a": "old", "gone": "old", "c": "a folder"}


def test_files_come_back_where_moving_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("old")
    rename, moved = os.rename, []

    def signalled(source: Path, place: Path) -> None:
        rename(source, place)
        moved.append(place.name)
        if len(moved) == 2:  # the old file is away, the new one in its place
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("meshcast.base.files.os.rename", signalled)
    with pytest.raises(InterruptedCommand):
        put(tmp_path, "abc", without="gone")
    assert contents(tmp_path) == {"a": "old"}


def test_names_that_are_equal_and_names_of_our_own(tmp_path: Path) -> None:
    """Files of one name in two folders, and one that is called as what is kept of earlier ones."""
    (tmp_path / "before").write_text("old")
    with whole_file(tmp_path / "before") as out:
        out.write(b"new")
    with whole_files(tmp_path / "job") as staged:
        staged.path(tmp_path / "same").write_text("here")
        staged.path(tmp_path / "below" / "same").write_text("there")
    assert contents(tmp_path) == {"before": "new", "below": "a folder", "same": "here"}
    assert (tmp_path / "below" / "same").read_text() == "there"


def test_held_signals_come_at_the_end() -> None:
    done = []

    def work() -> None:
        with held() as hold:
            signal.raise_signal(signal.SIGINT)
            done.append(hold.number)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == [signal.SIGINT]
    with held() as hold:
        signal.raise_signal(signal.SIGINT)
        hold.too_late()


def test_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "step.json.gz").write_text("old")

    def write() -> None:
        with whole_file(tmp_path / "step.json.gz") as out:
            out.write(b"some")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OutputError, match="No space left"):
        write()
    assert contents(tmp_path) == {"step.json.gz": "old"}


def test_a_thread_that_cannot_write_stops_the_others(tmp_path: Path) -> None:
    made: list[int] = []

    def content(number: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        if number == 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        made.append(number)
        return np.full(3, number, dtype=np.uint8)

    with pytest.raises(OSError, match="No space left"):
        write_all((tmp_path / str(number), lambda number=number: content(number)) for number in range(10_000))  # type: ignore[misc]
    assert len(made) < 10_000
    write_all((tmp_path / f"all{number}", lambda number=number: content(number)) for number in range(5))  # type: ignore[misc]
    assert (tmp_path / "all4").read_bytes() == b"\x04\x04\x04"


def test_folders_that_were_made_go_again(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), whole_files(tmp_path / "a" / "b" / "job"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_places_that_take_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="a device or a pipe"):
        check_place(Path("/dev/null"), where="-o")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is no folder"):
        check_folder(tmp_path / "file" / "below", where="-o")
    monkeypatch.setattr("meshcast.base.files.os.access", lambda *_: False)  # root may write anywhere
    with pytest.raises(UsageError, match="cannot be written to"):
        check_folder(tmp_path / "new", where="-o")


def test_a_signal_while_modules_are_loaded_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Raised there, it aborts native modules that call back while they are loaded: jaxlib's, when it makes its enums."""
    (tmp_path / "interrupted_import.py").write_text(
        "import signal, sys\nfrom meshcast.base import interruption\ninterruption._raise(signal.SIGINT, sys._getframe())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    class Left(BaseException):
        pass

    def leave(code: int) -> None:
        raise Left(code)

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr("meshcast.base.interruption._ignore", lambda: None)
    monkeypatch.setattr("meshcast.base.interruption._half_done", [])
    monkeypatch.setattr("meshcast.base.interruption._command.done", False)
    with pytest.raises(Left, match="130"):
        importlib.import_module("interrupted_import")
    assert "meshcast: interrupted" in capfd.readouterr().err
