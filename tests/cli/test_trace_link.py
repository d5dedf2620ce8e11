"""`meshcast trace link`: from recordings to a replay, and what it says of bad input."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from meshcast.base import Said, listening
from meshcast.traces.recorded.events import read_device_trace
from meshcast.traces.recorded.files import link_traces
from tests.cli.conftest import Meshcast
from tests.traces.recorded.recordings import execution_trace, profile, write
from tests.traces.recorded.test_linking import linked


def test_recordings_become_a_job_that_replays(meshcast: Meshcast, tmp_path: Path) -> None:
    write(tmp_path, "et.json", execution_trace(2))
    write(tmp_path, "kineto.json", profile(0, world=1))
    answer = meshcast("trace", "link", "--host", "et.json", "--device", "kineto.json", "-o", "linked", "--json")
    assert answer.code == 0
    (said,) = answer.lines
    assert said["schema"] == "meshcast.linked/1"
    assert said["ranks"][0]["linked_operators"] == said["ranks"][0]["operators"] == 3
    assert [Path(file).name for file in said["files"]] == ["job.0.et", "job.comm_groups.json", "job.linked.json"]
    replayed = meshcast("predict", "linked", "--on", "dgx-h100", "--json")
    assert replayed.lines[0]["step_time_s"] == pytest.approx(said["measured_span_s"], rel=0.02)
    assert "67 us" in meshcast("trace", "link", "--device", "kineto.json", "-o", "again").out


def test_bad_input_is_said_and_nothing_is_left(meshcast: Meshcast, tmp_path: Path) -> None:
    (tmp_path / "cut.json").write_text('{"traceEvents": [{"ph": "X"')
    assert meshcast("trace", "link", "--device", "cut.json", "-o", "linked").code == 2
    write(tmp_path, "kineto.json", profile(0))
    answer = meshcast("trace", "link", "--device", "kineto.json", "-o", "linked", "--form", "xml")
    assert (answer.code, "one of protobuf, json" in answer.err) == (2, True)
    assert not (tmp_path / "linked").exists()


def test_where_the_time_of_a_job_goes(meshcast: Meshcast, tmp_path: Path) -> None:
    linked(tmp_path)
    answer = meshcast("show", "out/job", "--analysis", "--json")
    assert answer.code == 0
    assert answer.lines[0]["schema"] == "meshcast.trace-analysis/1"
    assert "The critical path, over ranks" in meshcast("show", "out/job", "--analysis").out
    assert meshcast("show", "llama3-tiny", "--analysis").code == 2


def test_traces_are_shared_and_verified(meshcast: Meshcast, tmp_path: Path) -> None:
    linked(tmp_path)
    answer = meshcast("trace", "share", "out/job", "-o", "shared", "--coarsen", "5%", "--json")
    assert (answer.code, answer.lines[0]["leaks"]) == (0, [])
    assert meshcast("trace", "share", "shared", "--against", "out/job").code == 0
    told = meshcast("trace", "share", "out/job", "--against", "out/job")
    assert (told.code, "names, paths or shapes" in told.err) == (2, True)
    assert meshcast("trace", "share", "out/job").code == 2


def test_what_is_no_trace_is_not_shared(meshcast: Meshcast, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"traceEvents": []}')
    for words in (("nowhere", "-o", "out"), (str(other), "-o", "out"), ("nowhere", "--against", "nowhere")):
        answer = meshcast("trace", "share", *words)
        assert answer.code == 2
        assert "fix: name a Chakra trace" in answer.err


def test_ranks_are_counted_while_they_are_linked(tmp_path: Path) -> None:
    """It was said how many events of a file were read, and neither of how many ranks nor how long the others take."""
    for rank in range(2):
        write(tmp_path / "profiles", f"rank{rank}.json", profile(rank, world=2))
    heard: list[Said] = []
    with listening(heard.append):
        link_traces([], [tmp_path / "profiles"], tmp_path / "out")
    words = [found[0] for said in heard if (found := re.search(r"(reading|writing) rank \d of 2", said))]
    assert list(dict.fromkeys(words)) == [f"{doing} rank {n} of 2" for doing in ("reading", "writing") for n in (1, 2)]
    shares = [said.share for said in heard if said.share is not None]
    assert shares == sorted(shares)
    assert shares[-1] >= 0.75


def test_a_long_profile_says_how_far_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshcast.traces.recorded.events.TOLD_EVERY", 1)
    monkeypatch.setattr("meshcast.traces.recorded.json_stream.CHUNK", 512)
    made = profile(0, world=1)
    made["traceEvents"] *= 200  # some buffers of a file
    heard: list[Said] = []
    with listening(heard.append):
        read_device_trace(write(tmp_path, "rank0.json", made))
    shares = [said.share for said in heard if said.share is not None]
    assert shares == sorted(shares)
    assert len(set(shares)) > 2
    assert shares[-1] > 0.5
