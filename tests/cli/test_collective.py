"""`meshcast collective`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshcast.base.errors import InputError, MeshcastError, UsageError
from meshcast.chakra import trace_bytes
from meshcast.cli.app import app
from meshcast.hardware.astra import read_network
from meshcast.network.astra import read_system
from meshcast.network.astra.outside import collective_node
from meshcast.network.benchmark import bus_factor, parse_sizes


def asked(*arguments: str) -> list[dict[str, object]]:
    result = CliRunner().invoke(app, ["collective", *arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_bandwidths_are_those_of_nccl_tests() -> None:
    (found,) = asked("all_reduce", "--bytes", "1GiB", "--on", "dgx-h100", "--devices", "8")
    assert found["algbw_bytes_per_s"] == pytest.approx(2**30 / found["time_s"])  # type: ignore[operator]
    assert found["busbw_bytes_per_s"] == pytest.approx(found["algbw_bytes_per_s"] * 2 * 7 / 8)  # type: ignore[operator]
    assert found["schema"] == "meshcast.collective/1"
    assert found["why"]
    assert bus_factor("all_gather", 8) == 7 / 8
    assert bus_factor("collective_permute", 8) == 1


def test_parts_add_up_to_the_time() -> None:
    for kind in ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "send-recv", "broadcast", "reduce"):
        (found,) = asked(kind, "--bytes", "64MiB", "--on", "dgx-a100", "--devices", "16")
        assert found["latency_s"] + found["bandwidth_s"] == pytest.approx(found["time_s"])  # type: ignore[operator]


def test_equal_questions_get_equal_bytes() -> None:
    question = ["collective", "all_to_all", "--bytes", "1MiB", "--on", "tpu-v5p-pod", "--devices", "64", "--json"]
    first, second = (CliRunner().invoke(app, [*question, "--network", "flow"]).stdout for _ in range(2))
    assert first == second


def test_a_sweep_doubles() -> None:
    found = asked("all_gather", "--bytes", "1KiB..1MiB", "--on", "gb200-nvl72", "--devices", "72")
    assert [one["bytes"] for one in found] == [1024 << i for i in range(11)]
    times = [one["time_s"] for one in found]
    assert times == sorted(times)  # type: ignore[type-var]


def test_the_library_can_be_overruled() -> None:
    question = ("all_reduce", "--bytes", "256MiB", "--on", "dgx-h100", "--devices", "8")
    (chosen,), (ring,) = asked(*question), asked(*question, "--algorithm", "ring", "--protocol", "LL")
    assert (ring["algorithm"], ring["protocol"]) == ("ring", "LL")
    assert ring["time_s"] > chosen["time_s"]  # type: ignore[operator]


def test_another_collective_beside_ours() -> None:
    mesh = ("--on", "dgx-h100", "--mesh", "data=8,model=8", "--axes", "data", "--network", "flow")
    (alone,) = asked("all_reduce", "--bytes", "1GiB", *mesh)
    (beside,) = asked("all_reduce", "--bytes", "1GiB", *mesh, "--with", "all_gather:1GiB:data")
    assert beside["time_s"] > 1.2 * alone["time_s"]  # type: ignore[operator]
    assert len(beside["with"]) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("all_redcue", "--bytes", "1MiB"), "did you mean 'all_reduce'"),
        (("all_reduce", "--bytes", "1MB/s"), "expected bytes"),
        (("all_reduce", "--bytes", "1GiBB"), "--bytes: expected bytes"),
        (("all_reduce", "--bytes", "0"), "whole number of bytes"),
        (("all_reduce", "--bytes", "1MiB", "--devices", "1"), "moves nothing"),
        (("all_reduce", "--bytes", "1MiB", "--mesh", "a=8", "--axes", "b"), "no axis 'b'"),
        (("all_reduce", "--bytes", "1MiB", "--with", "all_gather:1MiB"), "use --network flow"),
        (("all_reduce", "--bytes", "1MiB", "--algorithm", "magic"), "does not apply"),
        (("all_reduce", "--bytes", "1MiB", "--network", "pigeon"), "no network model"),
        (("all_reduce", "--bytes", "1MiB", "--link", "nvlnk=0.5"), "no such level"),
    ],
)
def test_mistakes_say_what_to_change(arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises((UsageError, InputError)) as caught:
        CliRunner().invoke(app, ["collective", *arguments], catch_exceptions=False)
    assert words in str(caught.value)
    assert caught.value.exit_code == 2


def test_sizes() -> None:
    assert parse_sizes("4096", "--bytes") == (4096,)
    assert parse_sizes("1KiB,1MB", "--bytes") == (1024, 1_000_000)
    assert parse_sizes("1..4", "--bytes") == (1, 2, 4)
    for bad in ("4..1", "1.5", "-1", "1e30 B"):
        with pytest.raises((UsageError, InputError)):
            parse_sizes(bad, "--bytes")


def test_tables_are_printed(tmp_path: Path) -> None:
    for size in ("1MiB", "1MiB..4MiB"):
        result = CliRunner().invoke(app, ["collective", "all_reduce", "--bytes", size, "--on", "dgx-h100"])
        assert result.exit_code == 0
        assert "8 devices" in result.stdout
        assert "in-network" in result.stdout or "ring" in result.stdout


def test_astra_sims_files_are_written(tmp_path: Path) -> None:
    folder = tmp_path / "inputs"
    for _ in range(2):  # a second export replaces the first
        asked("all_gather", "--bytes", "64MiB", "--on", "dgx-h100", "--devices", "16", "--export-astra", str(folder))
    network = read_network(folder / "network.yml")
    assert network.npus == 16
    assert len(list(folder.glob("collective.*.et"))) == 16
    shard = trace_bytes([collective_node("all_gather", 2**22)])  # ASTRA-sim counts what an NPU starts with
    assert (folder / "collective.15.et").read_bytes() == shard
    assert read_system(folder / "system.json").splits == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["all_reduce", "--bytes", "1MiB,2MiB", "--devices", "8"], "one --bytes"),
        (["broadcast", "--bytes", "1MiB", "--devices", "8"], "ASTRA-sim has no"),
        (["all_reduce", "--bytes", "1MiB", "--mesh", "a=2,b=4", "--axes", "a"], "groups of 2"),
    ],
)
def test_what_astra_sim_has_no_files_for(arguments: list[str], message: str, tmp_path: Path) -> None:
    command = ["collective", *arguments, "--on", "dgx-h100", "--export-astra", str(tmp_path / "x")]
    with pytest.raises(MeshcastError, match=message):
        CliRunner().invoke(app, command, catch_exceptions=False)
