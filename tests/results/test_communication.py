"""What predictions say about communication: groups, links, slowdown and critical path, in JSON and in words."""

from __future__ import annotations

from typing import Any

import pytest

from meshcast import Options, predict
from meshcast.base.errors import UsageError
from meshcast.results.printer import prediction_text

SETTINGS = {"batch": "32", "seq": "256", "sequence_parallel": "true"}


def predicted(**changes: Any) -> Any:
    options = Options(on="dgx-h100", mesh={"fsdp": 4, "tensor": 8}, settings=SETTINGS, levers=False, host="off")
    return predict("llama3-tiny", options, **changes)


@pytest.mark.parametrize(
    "changes", [{}, {"contention": "off"}, {"overlap": "prefetch,buckets=1MiB,async-tp"}, {"channels": 1}]
)
def test_parts_add_up(changes: dict[str, Any]) -> None:
    found = predicted(**changes).to_json()
    step = found["step_time_s"]
    assert sum(found["breakdown_s"].values()) == pytest.approx(step)
    groups = found["communication_groups"]
    assert sum(group["exposed_s"] for group in groups) == pytest.approx(found["breakdown_s"]["exposed_communication"])
    assert sum(group["busy_s"] for group in groups) == pytest.approx(found["communication_s"])
    for group in groups:
        assert group["exposed_s"] + group["overlapped_s"] == pytest.approx(group["busy_s"])
    path = found["critical_path"]
    assert sum(segment["seconds"] for segment in path["segments"]) == pytest.approx(step)
    assert sum(path["seconds"].values()) == pytest.approx(step)
    for link in found["links"]:
        assert link["utilisation"] == pytest.approx(link["bytes_sent"] / (link["bandwidth"] * step))
        assert 0 < link["utilisation"] < 1
    assert sum(found["provenance"].values()) == pytest.approx(1)


def test_the_schedule_is_told() -> None:
    found = predicted().to_json()
    channels = len(found["communication_groups"])
    assert found["schedule"] == {
        "scheduler": "latency-hiding", "channels": channels, "contention": "on", "overlap": "",
    }  # fmt: skip
    used = predicted(scheduler="serial", channels=1, contention="off").to_json()["schedule"]
    assert used == {"scheduler": "serial", "channels": 1, "contention": "off", "overlap": ""}


def test_contention_costs_time_and_says_so() -> None:
    on, off = predicted(overlap="prefetch"), predicted(overlap="prefetch", contention="off")
    assert off.to_json()["slowdown_s"] == {"compute": 0, "communication": 0}
    assert on.communication.slowdown.compute > 0
    assert on.step_time_s >= off.step_time_s
    assert "longer beside communication" in prediction_text(on)
    assert "longer beside" not in prediction_text(off)


def test_the_text_has_groups_links_and_the_critical_path() -> None:
    text = prediction_text(predicted())
    for part in (
        "Exposed and overlapped",
        "links in use: nvlink",
        "Critical path:",
        "schedule",
        "latency-hiding, 4 channels",
    ):
        assert part in text


def test_one_device_has_nothing_to_say() -> None:
    found = predict("llama3-tiny", on="h100-sxm", settings={"batch": "1", "seq": "128"})
    assert found.communication is None
    assert "critical_path" not in found.to_json()


@pytest.mark.parametrize(
    "wrong",
    [
        {"scheduler": "best"},
        {"channels": -2},
        {"contention": "maybe"},
        {"overlap": "bucket=1MiB"},
        {"overlap": "gathers=2", "scheduler": "ideal"},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        predicted(**wrong)
