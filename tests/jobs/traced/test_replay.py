"""Small jobs written by hand: times that can be worked out on paper, and ranks that do not fit together."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshcast import predict
from meshcast.base.errors import InputError, UnsupportedError, UsageError
from meshcast.chakra import ChakraTrace, Node, NodeType, NodeValues, read_trace, trace_bytes
from meshcast.hardware.conditions import Conditions
from meshcast.jobs.traced import find_traces, names_traces
from meshcast.jobs.traced.ranks import read_traced, with_speeds
from meshcast.options.options import Options
from tests.jobs.traced.jobs import collective, compute, job, receive, send

MICRO = 1e-6


def step_us(prefix: Path, **options: Any) -> float:
    found = predict(prefix, on="dgx-h100", **options)
    assert found.step_time_s is not None
    assert found.breakdown is not None
    assert found.breakdown.total == pytest.approx(found.step_time_s)
    return found.step_time_s / MICRO


def test_streams_run_beside_each_other(tmp_path: Path) -> None:
    """Compute 1 (10), then 2 (20) beside the collective of 1 (15), then 4 behind both: 10 + 20 + 5."""
    nodes = [compute(1, 10), compute(2, 20, 1), collective(3, 15, 1), compute(4, 5, 2, 3)]
    assert step_us(job(tmp_path, [nodes, nodes])) == pytest.approx(35)


def test_the_lowest_number_goes_first(tmp_path: Path) -> None:
    """Both are ready at 0: number 2 first, so what waits for it starts at 10 and not at 40."""
    nodes = [compute(3, 30), compute(2, 10), collective(4, 50, 2)]
    assert step_us(job(tmp_path, [nodes, nodes])) == pytest.approx(60)


def test_a_collective_waits_for_the_last(tmp_path: Path) -> None:
    prefix = job(tmp_path, [[compute(1, micros), collective(2, 5, 1)] for micros in (10, 30, 20, 20)])
    assert step_us(prefix) == pytest.approx(35)
    assert len(read_traced(find_traces(prefix)).classes) == 3


def test_messages_and_groups(tmp_path: Path) -> None:
    """Rank 0 computes 10 and sends for 4, rank 1 receives at 14 and computes 6; both then reduce with their neighbours."""
    pair = [
        [compute(1, 10), send(2, 4, 2, 1), collective(3, 3, 1, pg_name="1")],
        [compute(1, 10), send(2, 4, 3, 1), collective(3, 3, 1, pg_name="1")],
        [receive(1, 0), compute(2, 6, 1), collective(3, 3, 2, pg_name="2")],
        [receive(1, 1), compute(2, 6, 1), collective(3, 3, 2, pg_name="2")],
    ]
    prefix = job(tmp_path, pair, {"1": [0, 1], "2": [2, 3]})
    assert step_us(prefix) == pytest.approx(10 + 4 + 6 + 3)
    assert len(read_traced(find_traces(prefix)).classes) == 2


def test_a_job_is_read_once_until_its_files_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison asks about one job on many devices; what lies there under the same name later is another job."""
    read: list[Path] = []

    def counted(path: Path) -> ChakraTrace:
        read.append(path)
        return read_trace(path)

    monkeypatch.setattr("meshcast.jobs.traced.ranks.read_trace", counted)
    prefix = job(tmp_path, [[compute(1, 10), collective(2, 5, 1)]] * 2)
    assert [step_us(prefix) for _ in range(3)] == pytest.approx([15] * 3)
    assert len(read) == 2
    job(tmp_path, [[compute(1, 20), collective(2, 5, 1)]] * 2)
    assert step_us(prefix) == pytest.approx(25)
    assert len(read) == 4


def test_a_slow_device(tmp_path: Path) -> None:
    """Of four equal ranks one computes at half the speed: 10 / 0.5, then the sum of all (5), then 4 beside 4 / 0.5."""
    prefix = job(tmp_path, [[compute(1, 10), collective(2, 5, 1), compute(3, 4, 2)]] * 4)
    assert step_us(prefix) == pytest.approx(19)
    assert step_us(prefix, conditions=Conditions(speed={2: 0.5})) == pytest.approx(20 + 5 + 8)
    assert step_us(prefix, conditions=Conditions(speed={2: 2.0})) == pytest.approx(19)
    with pytest.raises(UsageError, match="no device 4 among 4"):
        step_us(prefix, conditions=Conditions(speed={4: 0.5}))
    pairs = [[compute(1, 10), collective(2, 5, 1, pg_name=str(rank // 2))] for rank in range(4)]
    found = read_traced(find_traces(job(tmp_path, pairs, {"0": [0, 1], "1": [2, 3]})))
    assert found.classes == (0,)
    assert with_speeds(found, (1.0, 1.0, 0.5, 1.0)).classes == (0, 2, 3)


def test_one_channel_takes_turns(tmp_path: Path) -> None:
    nodes = [compute(1, 1), collective(2, 10, 1, stream=1), collective(3, 10, 1, stream=2)]
    assert step_us(job(tmp_path, [nodes, nodes])) == pytest.approx(11)
    assert step_us(job(tmp_path, [nodes, nodes]), channels=1) == pytest.approx(21)


def test_host_nodes_run_beside_the_device_and_launch_it(tmp_path: Path) -> None:
    """As a converted PyTorch trace: the host's op (5), its kernel (20), the next op (5) and the group's all-reduce."""
    listed = json.dumps([{"pg_name": "default", "ranks": [0, 1, 2, 3]}])
    nodes = [
        Node(number=1, name="process_group:init", kind=NodeType.METADATA, inputs=NodeValues(values=listed)),
        Node(number=2, name="aten::mm", kind=NodeType.COMPUTE, duration_us=5, attributes={"is_cpu_op": True, "tid": 1}),
        Node(number=3, name="gemm", kind=NodeType.COMPUTE, duration_us=20, data_deps=(2,),
             attributes={"is_cpu_op": False, "stream": 7}),
        Node(number=4, name="c10d::allreduce_", kind=NodeType.COMPUTE, duration_us=5, data_deps=(2,),
             attributes={"is_cpu_op": True, "tid": 1}),
        Node(number=5, name="ncclDevKernel_AllReduce", kind=NodeType.COLLECTIVE, duration_us=8, data_deps=(3, 4),
             attributes={"is_cpu_op": False, "stream": 24, "comm_type": 0, "comm_size": 4096, "pg_name": "default"}),
    ]  # fmt: skip
    # Callers are named as control dependencies, wait for what they call, and may be left out of the file.
    nodes = [replace(n, control_deps=(n.number % 5 + 1, 77), attributes={**n.attributes, "rf_id": 1}) for n in nodes]
    path = tmp_path / "rank.et"
    path.write_bytes(trace_bytes(nodes, "v0.0.4"))
    found = predict(path, on="dgx-h100")
    assert found.devices == 4
    assert found.step_time_s == pytest.approx(33 * MICRO)
    assert found.provenance.measured == 1.0
    assert found.kernels == 2, "what the host does is no kernel"
    assert any("one rank" in warning for warning in found.warnings)


def test_compute_again_on_another_device(tmp_path: Path) -> None:
    """1e12 operations of bf16 take 1e12 / 989e12 s on an H100 at least, 1e12 / 312e12 s on an A100."""
    nodes = [compute(1, 1, num_ops=10**12, tensor_size=1000, dtype="bf16"), collective(2, 0, 1, size=1 << 30)]
    prefix = job(tmp_path, [nodes] * 4)
    again = [
        predict(prefix, on=on, durations="estimated", fidelity="roofline") for on in ("dgx-a100", "dgx-h100")
    ]  # fmt: skip
    a100, h100 = (found.breakdown.compute for found in again if found.breakdown is not None)
    assert a100 == pytest.approx(1e12 / 312e12, rel=0.01)
    assert h100 == pytest.approx(1e12 / 989e12, rel=0.01)
    assert all((found.breakdown.exposed_communication if found.breakdown else 0) > 1e-3 for found in again)


def test_nodes_that_do_not_say_what_they_do(tmp_path: Path) -> None:
    """They are replayed as compute; beside others that are worked out they keep their time; alone there is nothing to do."""
    silent = Node(number=1, name="k1", kind=NodeType.COMPUTE, duration_us=40)
    prefix = job(tmp_path, [[silent]])
    found = predict(prefix, on="dgx-h100")
    assert found.breakdown is not None
    assert found.breakdown.compute == pytest.approx(40 * MICRO)
    assert found.top_kernels[0].limited_by == "not known"
    with pytest.raises(UnsupportedError, match="none of 1 different compute nodes says what it does"):
        predict(prefix, on="dgx-h100", durations="estimated")
    some = step_us(job(tmp_path, [[compute(2, 1)]]), durations="estimated")
    both = job(tmp_path, [[silent, compute(2, 1, 1)]])
    assert step_us(both, durations="estimated") == pytest.approx(40 + some)
    assert any("nodes of 40 us say neither" in w for w in predict(both, on="dgx-h100").warnings)


def test_many_launches_in_one_node(tmp_path: Path) -> None:
    once = job(tmp_path, [[compute(1, 1, num_ops=10**9, tensor_size=10**6)]])
    one = step_us(once, durations="estimated")
    many = job(tmp_path, [[compute(1, 1, num_ops=50 * 10**9, tensor_size=50 * 10**6, repeat=50)]])
    assert step_us(many, durations="estimated") == pytest.approx(50 * one)


def test_targets(tmp_path: Path) -> None:
    prefix = job(tmp_path, [[compute(1, 10)]] * 2)
    for target in (prefix, tmp_path, f"{prefix}.1.et"):
        assert names_traces(target)
        assert find_traces(target).by_rank == {0: tmp_path / "job.0.et", 1: tmp_path / "job.1.et"}
    assert not names_traces("llama3-8b")
    (tmp_path / "job.0.et").unlink()
    with pytest.raises(InputError, match="1 of 2 ranks have no file, rank 0 first"):
        find_traces(f"{prefix}.1.et")
    with pytest.raises(InputError, match="no such file"):
        predict(f"{prefix}.7.et", on="dgx-h100")
    with pytest.raises(UsageError, match="already"):
        predict(f"{prefix}.1.et", on="dgx-h100", plan="dp=2")
    with pytest.raises(UsageError, match="no durations"):
        predict(job(tmp_path, [[compute(1, 10)]]), on="dgx-h100", durations="other")  # type: ignore[arg-type]


def test_a_manifest_is_a_target_and_is_checked(tmp_path: Path) -> None:
    """Two ranks of one file, and what is wrong with a manifest by name and place."""
    prefix = job(tmp_path, [[compute(1, 10), collective(2, 5, 1, pg_name="1")]], {"1": [0, 1]})
    value = {"attribute": "pg_name", "in_file": 1, "of_rank": [1, 1]}
    equal = {"file": "job.0.et", "ranks": "0-1", "ambiguous": False, "values": [value]}
    said = {"name": "job", "ranks": 2, "dedup": True, "comm_groups": "job.comm_groups.json", "classes": [equal]}
    manifest = tmp_path / "job.manifest.json"

    def step(**changed: Any) -> float:
        manifest.write_text(json.dumps({name: v for name, v in {**said, **changed}.items() if v is not None}))
        return step_us(manifest)

    assert step() == pytest.approx(15)
    assert predict(prefix, on="dgx-h100").devices == 2
    for changed, message in (
        ({"ranks": None}, "ranks is missing"),
        ({"ranks": "2"}, "ranks is '2', not of type int"),
        ({"ranks": 3}, "names 2 of 3 ranks"),
        ({"classes": [7]}, "classes[0] is 7"),
        ({"classes": [{**equal, "ranks": "1-0"}]}, "ends before it begins"),
        ({"classes": [{**equal, "ranks": "0-9999999999"}]}, "rank 9999999999 is beyond the last one, 1"),
        ({"ranks": 2**70}, "is of 1.18059e+21 ranks"),
        ({"ranks": 0, "classes": []}, "is of 0 ranks"),
        (
            {"classes": [{**equal, "file": "../../other.0.et"}]},
            "classes[0].file is '../../other.0.et', and not the name",
        ),
        ({"classes": [{**equal, "file": ""}]}, "classes[0].file is ''"),
        ({"classes": [{**equal, "file": "job\0.0.et"}]}, "classes[0].file is 'job\\x00.0.et'"),
        ({"comm_groups": "x/y"}, "comm_groups is 'x/y'"),
        ({"comm_groups": ""}, "comm_groups is ''"),
        ({"classes": [{**equal, "values": [{**value, "of_rank": [2**70, 1]}]}]}, "no list of 2 whole numbers"),
        ({"classes": [{**equal, "values": [{**value, "of_rank": [1]}]}]}, "no list of 2 whole numbers"),
        ({"classes": [{**equal, "values": [{**value, "attribute": "tag"}]}]}, "attribute is 'tag'"),
    ):
        with pytest.raises(InputError) as raised:
            step(**changed)
        assert message in raised.value.message
        assert raised.value.fix
    (tmp_path / "job.0.et").write_bytes(trace_bytes([send(1, 4, 1)]))
    with pytest.raises(InputError, match="no value says whom"):
        step()


def test_every_option_is_heeded_or_refused_as_its_declaration_says(tmp_path: Path) -> None:
    prefix = job(tmp_path, [[compute(1, 10)]] * 2)
    other = Conditions(kinds={0: "a100-sxm-80gb"})
    for flag, asked in (
        ("--host", {"host": "off"}), ("--scheduler", {"scheduler": "serial"}), 
        ("--indices", {"indices": "zipf:1"}), ("--stack", {"fusion": "eager"}), ("--channels", {"channels": 2}),
        ("--slow", {"conditions": other}), ("--placement", {"placement": "optimise"}),
    ):  # fmt: skip
        with pytest.raises(UsageError) as raised:
            predict(prefix, Options(on="dgx-h100", **asked))
        assert raised.value.where == flag
    for flag, asked in (("--network", {"network": "flow"}), ("--clocks", {"clocks": "burst"})):
        said = predict(prefix, Options(on="dgx-h100", **asked)).warnings  # type: ignore[arg-type]
        assert any(f"{flag} changes none" in warning for warning in said)


def test_what_estimates_heed_changes_them(tmp_path: Path) -> None:
    """Products above the power cap, then all-reduces of pairs that are hosts apart."""
    products = {"num_ops": 10**13, "matrix_ops": 10**13, "tensor_size": 10**9, "dtype": "bf16"}
    nodes = [
        [compute(1, 10, **products), collective(2, 5, 1, pg_name=str(rank % 8), size=1 << 28)] for rank in range(16)
    ]
    prefix = job(tmp_path, nodes, {str(group): [group, group + 8] for group in range(8)})
    together = tmp_path / "together.txt"
    together.write_text("\n".join(str(2 * (rank % 8) + rank // 8) for rank in range(16)))

    def step(**asked: Any) -> float:
        found = predict(prefix, Options(on="dgx-h100", durations="estimated", **asked)).step_time_s
        assert found is not None
        return found

    assert step(clocks="burst") < step()
    assert step(placement=str(together)) < step()
    assert step(fidelity="roofline") < step()
    assert step(network="flow", beside=("all_reduce:1GiB:0-15",)) > step(network="flow")


def test_memory_that_does_not_fit_and_that_is_not_known(tmp_path: Path) -> None:
    """40 GB on a V100 of 32 GiB: refused where it is worked out, said where it was recorded."""
    held = compute(1, 10, outputs=("a", str(40 * 10**9)))
    again = predict(job(tmp_path, [[held]]), on="v100-sxm2-32gb", durations="estimated")
    assert again.step_time_s is None
    assert again.infeasible is not None
    assert (again.infeasible.demand, again.infeasible.bound) == (40 * 10**9, again.capacity_bytes)
    assert again.memory.peak == 40 * 10**9
    recorded = predict(job(tmp_path, [[held]]), on="v100-sxm2-32gb")
    assert recorded.step_time_s == pytest.approx(10 * MICRO)
    assert any("does not fit at once" in warning for warning in recorded.warnings)
    unknown = predict(job(tmp_path, [[compute(1, 10)]]), on="v100-sxm2-32gb")
    assert unknown.to_json()["memory_bytes"]["peak"] is None
    assert "not known" in str(unknown)


def test_a_gather_and_a_scatter_take_what_passes_the_port_of_their_root(tmp_path: Path) -> None:
    """A gather of shards moves over the root's port what an all-gather moves over every port; a scatter the same way back."""
    size = 1 << 20
    taken = {
        name: step_us(job(tmp_path, [[collective(1, 0, kind=kind, size=bytes)]] * 4))
        for name, kind, bytes in (("all_gather", 2, size), ("gather", 3, size), ("scatter", 4, 4 * size))
    }
    assert taken["gather"] == taken["scatter"] == taken["all_gather"] > 0
