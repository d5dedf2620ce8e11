"""Traces of ranks as files: bodies by hand, round trips, what equal ranks share, what is refused."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshcast import predict
from meshcast.base.errors import InfeasibleError, InputError, OutputError, UnsupportedError, UsageError
from meshcast.base.mesh import Group, Mesh
from meshcast.base.number_ranges import parse_ranges, ranges
from meshcast.chakra import NodeType, checked_trace, read_trace
from meshcast.chakra.schema import COLLECTIVE_CODES, COLLECTIVE_KINDS, CollectiveCode
from meshcast.jobs.nodes.job import JobTrace, classes_of
from meshcast.jobs.nodes.job_groups import JobGroups
from meshcast.jobs.nodes.kernels_as_pieces import collective_pieces, waiting
from meshcast.jobs.nodes.pieces import Piece, RankBody
from meshcast.options.options import Options
from meshcast.traces import chakra
from meshcast.traces.chakra import ChakraFiles, planned, write
from meshcast.traces.encoding import whole_microseconds
from meshcast.traces.format_names import FORMAT_NAMES
from meshcast.traces.formats import FORMATS, write_trace
from meshcast.traces.request import TraceRequest
from meshcast.traces.timelines import job_timeline
from meshcast.workload.graph import Collective

SETTINGS = {"batch": "8", "seq": "64"}


def trace(out: Path, plan: str, on: str = "dgx-h100", **request: Any) -> dict[str, Any]:
    options = Options(on=on, plan=plan, settings=SETTINGS)
    return dict(write_trace("chakra", TraceRequest(target="llama3-tiny", options=options, out=out, **request)).summary)


@pytest.mark.parametrize("plan", ["fsdp=4,tp=2", "pp=2,dp=2,tp=2", "pp=2,dp=2,zero=1"])
@pytest.mark.parametrize("form", [{}, {"dedup": True}, {"unroll": True, "memory": False, "schema": "v0.0.4"}])
def test_there_and_back_takes_as_long(tmp_path: Path, plan: str, form: dict[str, Any]) -> None:
    written = trace(tmp_path / "job", plan, **form)
    found = predict(tmp_path / "job", on="dgx-h100")
    assert found.step_time_s == pytest.approx(written["step_time_s"], rel=1e-6)
    assert found.devices == written["ranks"]
    again = predict("llama3-tiny", on="dgx-h100", plan=plan, settings=SETTINGS)
    assert found.step_time_s == pytest.approx(again.step_time_s, rel=1e-6)


STREAMED = {"optimizer state from host", "optimizer state to host"}


@pytest.mark.parametrize(
    ("model", "plan", "behind"),
    [
        ("gpt2-tiny", "pp=2", {"tied gradients summed"}),
        ("gpt2-tiny", "pp=2,tp=2,dp=2", {"tied gradients summed", "gradients reduced"}),
        (
            "gpt2-tiny",
            "pp=2,offload=optimizer",
            {"tied gradients summed", *STREAMED},
        ),
        (
            "llama3-tiny",
            "pp=2,dp=2,zero=1,offload=optimizer",
            {*STREAMED, "parameters gathered", "gradients reduced"},
        ),
        ("llama3-tiny", "pp=2,fsdp=2", {"gradients summed"}),
    ],
)
def test_everything_behind_the_passes_is_written(tmp_path: Path, model: str, plan: str, behind: set[str]) -> None:
    """Sums inside a stage, sums of tied weights, the host's state, gathers: in traces and on timelines."""
    options = Options(on="dgx-h100", plan=plan, settings=SETTINGS)
    step = predict(model, options).step_time_s
    assert step is not None
    write_trace("chakra", TraceRequest(target=model, options=options, out=tmp_path / "job"))
    assert predict(tmp_path / "job", on="dgx-h100").step_time_s == pytest.approx(step, rel=1e-9)
    drawn = job_timeline(model, options)
    slices = [each for kind in drawn.kinds for each in kind.slices(int(kind.ranks[0]))]
    assert behind <= {each.what.name for each in slices}
    assert max(each.end for each in slices) == pytest.approx(step, rel=1e-9)
    for kind in drawn.kinds:
        mine = [each for each in kind.slices(int(kind.ranks[0])) if each.track == "gradients"]
        assert all(a.end <= b.start + 1e-12 for a, b in pairwise(sorted(mine, key=lambda each: each.start)))


def test_copies_beside_compute_are_waits(tmp_path: Path) -> None:
    """A program as the TPU's compiler left it: what of its copies is waited for takes its time in the trace."""
    source = Path(__file__).parents[1] / "fixtures" / "tpu_chain.hlo"
    request = TraceRequest(target=source, options=Options(on="tpu-v5e"), out=tmp_path / "job")
    written = write_trace("chakra", request).summary
    names = [node.name for node in read_trace(tmp_path / "job.0.et").nodes]
    assert "waiting for copies" in names
    assert predict(tmp_path / "job", on="tpu-v5e").step_time_s == pytest.approx(written["step_time_s"], rel=1e-9)


def test_files_keep_to_the_feeders_rules(tmp_path: Path) -> None:
    trace(tmp_path / "job", "pp=2,dp=2,tp=2")
    groups = json.loads((tmp_path / "job.comm_groups.json").read_text())
    assert all(int(name) > 0 and len(ranks) > 1 for name, ranks in groups.items())
    messages: dict[tuple[int, int, int, int], int] = {}
    for rank in range(8):
        found = checked_trace(read_trace(tmp_path / f"job.{rank}.et"))
        numbers = [node.number for node in found.nodes]
        assert numbers == sorted(set(numbers))
        for node in found.nodes:
            assert all(dep < node.number for dep in (*node.data_deps, *node.control_deps))
            assert set(node.control_deps) <= set(node.data_deps)  # readers of v0.0.4 know no others
            said = node.attributes
            assert {"is_cpu_op", "duration_ns", "inputs", "outputs"} <= set(said)
            if node.kind is NodeType.COMPUTE:
                assert isinstance(said["num_ops"], int)
                assert isinstance(said["tensor_size"], int)
                assert min(said["num_ops"], said["tensor_size"]) >= 1
            elif node.kind is NodeType.COLLECTIVE:
                assert said["comm_type"] in (0, 2, 5, 6, 7)
                assert said["is_cpu_op"] is False
                assert rank in groups[said["pg_name"]]
            else:
                peer = said["comm_dst" if node.kind is NodeType.SEND else "comm_src"]
                pair = (rank, peer) if node.kind is NodeType.SEND else (peer, rank)
                key = (*pair, said["comm_tag"], said["comm_size"])
                messages[key] = messages.get(key, 0) + (1 if node.kind is NodeType.SEND else -1)
    assert messages
    assert not any(messages.values())


def test_some_ranks_and_an_earlier_export(tmp_path: Path) -> None:
    trace(tmp_path / "job", "fsdp=4", ranks="1,3")
    assert sorted(path.name for path in tmp_path.glob("*.et")) == ["job.1.et", "job.3.et"]
    with pytest.raises(InputError, match="names 2 of 4 ranks"):
        predict(tmp_path / "job.1.et", on="dgx-h100")
    trace(tmp_path / "job", "fsdp=2")
    assert sorted(path.name for path in tmp_path.glob("*.et")) == ["job.0.et", "job.1.et"]
    with pytest.raises(UsageError, match="no rank 4 among 4"):
        trace(tmp_path / "job", "fsdp=4", ranks="4")
    with pytest.raises(UsageError, match="no schema"):
        trace(tmp_path / "job", "fsdp=4", schema="v9")
    with pytest.raises(UsageError, match="no format"):
        write_trace("other", TraceRequest(target="x", options=Options(), out=tmp_path))
    assert "chakra" in FORMATS


def by_hand(ranks: int) -> JobTrace:
    """A job of one wait and two collectives: over neighbours, and over all but the first two ranks."""
    groups, body = JobGroups(ranks=ranks), RankBody()
    first = body.add(waiting("w", 1.4e-6))
    for number, group in enumerate(
        (
            Mesh.of({"a": ranks // 2, "b": 2}).group(["b"]),
            Group(dims=((ranks - 2, 1),), first=2, table=(tuple(range(2, ranks)),)),
        )
    ):
        exchange = Collective(kind="all_reduce", group=group, input_bytes=64, output_bytes=64)
        pieces = collective_pieces(f"c{number}", exchange, ranks, 2e-6, 1, groups, {"inputs": (), "outputs": ()})
        first = body.add(pieces[0], (first,))
    body.add(waiting("end", 1.4e-6), (first,))
    classes = tuple(classes_of(body, np.arange(ranks), groups))
    seconds = sum(piece.seconds for piece in body.pieces)
    return JobTrace(name="hand", groups=groups, classes=classes, step_s=seconds, makespan_s=seconds)


def test_every_rank_has_its_own_group(tmp_path: Path) -> None:
    """Of 40 ranks: 20 pairs, whose numbers have one or two digits, and a group that the first two are not in."""
    job = by_hand(40)
    assert [each.ranks.size for each in job.classes] == [38, 2]
    files = ChakraFiles(prefix=tmp_path / "job")
    what = planned(job, files)
    write(job, files, what)
    assert what.size == sum(path.stat().st_size for path in tmp_path.glob("*.et"))
    for rank in range(40):
        nodes = checked_trace(read_trace(files.path(rank))).nodes
        names = [node.attributes["pg_name"] for node in nodes if "pg_name" in node.attributes]
        assert names == [str(1 + rank // 2), "21"][: 1 if rank < 2 else 2]
        assert nodes[-1].data_deps == ((2,) if rank < 2 else (3,))
    assert json.loads(files.groups.read_text())["21"] == list(range(2, 40))


def permuted(ranks: int) -> JobTrace:
    """A job of two permutations: around pairs, and around all."""
    groups, body = JobGroups(ranks=ranks), RankBody()
    for number, axes in enumerate((["b"], ["a", "b"])):
        group = Mesh.of({"a": ranks // 2, "b": 2}).group(axes)
        exchange = Collective(kind="collective_permute", group=group, input_bytes=64, output_bytes=64)
        said = {"inputs": (), "outputs": ()}
        before = tuple(range(len(body)))
        for piece in collective_pieces(f"p{number}", exchange, ranks, 2e-6, 1 + number, groups, said):
            body.add(piece, before)
    classes = tuple(classes_of(body, np.arange(ranks), groups))
    return JobTrace(name="ring", groups=groups, classes=classes, step_s=4e-6, makespan_s=4e-6)


def test_one_neighbour_in_two_roles(tmp_path: Path) -> None:
    """Rank 0's next is rank 1 in both rings, rank 1's is 0 in one and 2 in the other: a file of each is needed."""
    job = permuted(4)
    with pytest.raises(UnsupportedError, match="two roles"):
        write(job, ChakraFiles(prefix=tmp_path / "job", dedup=True))
    write(job, ChakraFiles(prefix=tmp_path / "job"))
    assert predict(tmp_path / "job", on="dgx-h100").step_time_s == pytest.approx(4e-6)
    sends = [n.attributes["comm_dst"] for n in read_trace(tmp_path / "job.1.et").nodes if n.kind is NodeType.SEND]
    assert sends == [0, 2]


def test_durations_in_microseconds_add_up() -> None:
    body = RankBody()
    for _ in range(1000):
        body.add(waiting("w", 1.4e-6))
    found = list(whole_microseconds(body))
    assert sum(found) == 1400
    assert set(found) == {1, 2}


def test_what_a_left_out_node_waited_for_is_waited_for() -> None:
    body = RankBody()
    pieces = [Piece(label=str(n), kind=NodeType.COMPUTE, seconds=1.0) for n in range(4)]
    body.add(pieces[0])
    body.add(pieces[1], (0,))
    body.add(pieces[2], (1,), (0,))
    body.add(pieces[3], order=(2,))
    left = body.without({1})
    assert left.data == [(), (0,), ()]
    assert left.order == [(), (), (1,)]
    assert body.ends() == [1.0, 2.0, 3.0, 4.0]


def test_a_full_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free, total = 1000, 1 << 40

    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage)
    with pytest.raises(InfeasibleError, match="do not fit on a disk with 1000 B free"):
        write(by_hand(4), ChakraFiles(prefix=tmp_path / "job"))
    assert not list(tmp_path.glob("*.et"))


def test_a_place_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        write(by_hand(4), ChakraFiles(prefix=tmp_path / "file" / "job"))


@pytest.mark.parametrize(("text", "found"), [("0", (0,)), ("0-3,7", (0, 1, 2, 3, 7)), ("5,5", (5,))])
def test_ranges(text: str, found: tuple[int, ...]) -> None:
    assert parse_ranges(text) == found
    assert parse_ranges(ranges(found)) == found


@pytest.mark.parametrize("text", ["", "a", "3-1", "-1", "1-", "²"])
def test_no_ranges(text: str) -> None:
    with pytest.raises(UsageError):
        parse_ranges(text)


def test_what_does_not_fit_has_no_trace(tmp_path: Path) -> None:
    options = Options(on="h100-sxm", settings={"batch": "64", "seq": "4096"})
    with pytest.raises(InfeasibleError, match="no step to trace"):
        write_trace("chakra", TraceRequest(target="llama3-8b", options=options, out=tmp_path / "job"))


def test_an_export_that_fails_leaves_the_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are put in their places when all are whole: until then the earlier ones stay."""
    trace(tmp_path / "job", "fsdp=2")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(chakra, "_manifest", full)
    with pytest.raises(OutputError, match="No space left"):
        trace(tmp_path / "job", "fsdp=4")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    monkeypatch.undo()
    trace(tmp_path / "job", "fsdp=4")
    assert len(list(tmp_path.glob("*.et"))) == 4
    assert not list(tmp_path.glob(".*"))


def test_codes_are_one_table() -> None:
    """What is written under a code is read as the same kind; one code more is read."""
    assert {code: kind for kind, code in COLLECTIVE_CODES.items()}.items() <= COLLECTIVE_KINDS.items()
    assert set(COLLECTIVE_KINDS) - set(COLLECTIVE_CODES.values()) == {CollectiveCode.REDUCE_SCATTER_BLOCK}


def test_every_format_has_a_name_for_people() -> None:
    assert list(FORMATS) == list(FORMAT_NAMES)


def test_flags_that_a_format_does_not_heed(tmp_path: Path) -> None:
    request = TraceRequest(target="x", options=Options(), out=tmp_path / "x.json", memory=False)
    with pytest.raises(UsageError) as raised:
        write_trace("kineto", request)
    assert raised.value.where == "--no-memory"
