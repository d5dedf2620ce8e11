"""What lies where an export goes: of an earlier one it goes, what others put there stays or is named."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from meshcast import predict
from meshcast.base.errors import UsageError
from meshcast.jobs.traced.files import find_traces
from meshcast.options.options import Options
from meshcast.traces.chakra import SPARE_BYTES
from meshcast.traces.formats import write_trace
from meshcast.traces.request import TraceRequest, Written

SETTINGS = {"batch": "8", "seq": "64"}


def written(out: Path, plan: str, kind: str = "chakra", **more: str) -> Written:
    options = Options(on="dgx-h100", plan=plan, settings=SETTINGS)
    return write_trace(kind, TraceRequest(target="llama3-tiny", options=options, out=out, **more))  # type: ignore[arg-type]


def test_what_users_put_beside_astra_sims_inputs_stays(tmp_path: Path) -> None:
    written(tmp_path / "job", "dp=4")
    own = tmp_path / "job.astra" / "my_system.json"
    own.write_text("{}")
    written(tmp_path / "job", "dp=2")
    assert own.read_text() == "{}"
    assert sorted(path.name for path in own.parent.iterdir()) == [
        "my_system.json", "network.yml", "remote_memory.json", "system.json",
    ]  # fmt: skip


def test_a_rank_of_no_export_is_refused(tmp_path: Path) -> None:
    """It would be taken for a rank of the job; one of an earlier export goes instead."""
    foreign = tmp_path / "job.7.et"
    foreign.write_bytes(b"mine")
    with pytest.raises(UsageError, match="of no export") as refused:
        written(tmp_path / "job", "dp=2")
    assert refused.value.where == str(foreign)
    assert [path.name for path in tmp_path.iterdir()] == ["job.7.et"]
    foreign.unlink()
    written(tmp_path / "job", "dp=4")
    written(tmp_path / "job", "dp=2")
    assert sorted(find_traces(tmp_path / "job").by_rank) == [0, 1]


def test_ranks_of_another_kineto_export_are_named(tmp_path: Path) -> None:
    out = tmp_path / "step.json"
    written(out, "pp=2", "kineto")
    (tmp_path / "step.5.json").write_text("{}")
    (tmp_path / "step.md.json").write_text("{}")
    assert "step.5.json" in written(out, "pp=2", "kineto").lines[-1]
    assert "step.md.json" not in written(out, "pp=2", "kineto").lines[-1]


def test_some_ranks_without_the_first_are_known_by_their_manifest(tmp_path: Path) -> None:
    written(tmp_path / "job", "dp=4", ranks="1,3")
    with pytest.raises(Exception, match="2 of 4 ranks"):
        predict(str(tmp_path / "job"), Options(on="dgx-h100"))


def test_a_small_disk_takes_small_exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A twentieth of it is kept free, not as much as of a large one."""
    disk = SimpleNamespace(total=100 << 20, used=0, free=100 << 20)
    assert disk.free < SPARE_BYTES
    monkeypatch.setattr("meshcast.traces.chakra.shutil.disk_usage", lambda _: disk)
    assert written(tmp_path / "job", "dp=2").summary["bytes"] > 0
