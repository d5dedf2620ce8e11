"""The report of traces with durations: what was recorded, replayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshcast.jobs import predict_with_job
from meshcast.jobs.traced import find_traces
from meshcast.options import Options
from meshcast.report import ReportData, prediction_data, report_page, subject_of
from meshcast.traces import recorded_timeline, understood
from tests.jobs.traced.jobs import collective, job
from tests.traces.recorded.test_linking import linked

MICRO = 1e-6


def data_of(target: Path) -> ReportData:
    return prediction_data(subject_of(*predict_with_job(str(target), Options(on="h100-sxm"))))


@pytest.fixture
def data(tmp_path: Path) -> ReportData:
    """Two ranks; rank 1 comes to the collective 10 us later (`tests/traces/recorded/test_understanding.py` has all times)."""
    return data_of(linked(tmp_path))


def test_devices_stragglers_path_and_classes(data: ReportData) -> None:
    found = data["sections"]["recorded"]
    ranks, path, exposed, idle, classes, sizes, links = found["tables"]
    assert {row[0] for row in sizes["rows"]} == {"matmul", "collective: all-reduce"}
    assert links["rows"][0][1] > links["rows"][2][1] > 0
    assert [row[0] for row in ranks["rows"]] == ["rank 1", "rank 0"]  # rank 0 waited for rank 1
    assert ranks["rows"][0][-1] == pytest.approx(10 * MICRO)
    assert path["rows"][0][:2] == ["the host", pytest.approx(57 * MICRO)]
    assert sum(row[2] for row in path["rows"]) == pytest.approx(1.0)
    assert exposed["rows"] == [["all ranks", pytest.approx(30 * MICRO), pytest.approx(30 / 90)]]
    assert idle["rows"][0][0] == "the host"
    assert [row[0] for row in classes["rows"]] == ["matmul", "collective: all-reduce"]
    for bar in found["bars"]:
        assert sum(part["seconds"] for part in bar["parts"]) == pytest.approx(found["span_s"])


def test_the_replay_is_drawn_stream_by_stream(data: ReportData) -> None:
    (scene,) = data["sections"]["timeline"]["scenes"]
    assert scene["step_ns"] == 67_000
    lanes = {lane["name"]: lane for lane in scene["kinds"][0]["lanes"]}
    product = next(lane for name, lane in lanes.items() if name.startswith("compute"))["slices"]
    assert product[:2] == [12_000, 20_000]
    assert {what["kind"] for what in scene["what"]} >= {"compute", "communication", "host"}
    assert data["traces"][0]["data"]  # for Perfetto
    assert "stragglers first" in report_page(data)


def test_collectives_are_drawn_from_when_their_rank_has_come(tmp_path: Path) -> None:
    timeline = recorded_timeline(understood(find_traces(linked(tmp_path))))
    first = [each for each in timeline.kinds[0].slices(0) if each.what.category == "collective"]
    assert [(each.start, each.end) for each in first] == [(pytest.approx(42 * MICRO), pytest.approx(62 * MICRO))]


def test_traces_without_durations_say_so(tmp_path: Path) -> None:
    data = data_of(job(tmp_path, [[collective(1, 0)], [collective(1, 0)]]))
    assert "recorded" not in data["sections"]
    assert "no durations" in data["sections"]["timeline"]["note"]
