"""What has no trace says so, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshcast.base.errors import UnsupportedError
from meshcast.options.options import Options
from meshcast.traces.formats import write_trace
from meshcast.traces.request import TraceRequest


@pytest.mark.parametrize(("kind", "name"), [("chakra", "job"), ("kineto", "step.json")])
def test_passes_in_pairs_have_no_trace(kind: str, name: str, tmp_path: Path) -> None:
    """Their step is shorter than their kernels one after another: what was written would not come back.

    Links are slow here, so that passes wait for exchanges whatever their kernels take.
    """
    options = Options(
        on="dgx-h100+nvlink.link_bandwidth=0.1GB/s", plan="pp=2,vp=2,ep=2,microbatches=4", overlap="paired-passes",
        settings={"layers": "4", "batch": "8", "seq": "64"},
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match="in pairs"):
        write_trace(kind, TraceRequest(target="mixtral-tiny", options=options, out=tmp_path / name))
    assert not list(tmp_path.iterdir())


def test_passes_that_could_but_do_not_run_in_pairs_have_one(tmp_path: Path) -> None:
    options = Options(
        on="dgx-h100", plan="ep=2,dp=2", overlap="paired-passes", settings={"layers": "2", "batch": "4", "seq": "64"}
    )
    write_trace("chakra", TraceRequest(target="mixtral-tiny", options=options, out=tmp_path / "job"))
    assert (tmp_path / "job.0.et").exists()
