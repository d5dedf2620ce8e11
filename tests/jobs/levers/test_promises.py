"""What a lever promises is what its flag gives: every named command is run."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from meshcast import predict
from meshcast.cli.app import app
from meshcast.jobs.program import lowering, timed
from meshcast.simulate import issue_order
from meshcast.workload import read_workload

SHARDED = str(Path(__file__).parents[2] / "fixtures" / "sharded.mlir")
ROOFLINE = ("--fidelity", "roofline")  # quick; the promise is the same whatever the fidelity
COMMANDS = {
    "mesh": ("llama3-tiny", "--on", "dgx-h100", "--mesh", "fsdp=4,tensor=4", "--set", "batch=16", "--set", "attention=plain"),
    "one device": ("gpt2-tiny", "--on", "h200", "--set", "batch=2"),
    "plan": ("llama3-tiny", "--on", "dgx-h100", "--plan", "fsdp=4,tp=2,remat=full", "--set", "batch=8", *ROOFLINE),
    "pipeline": ("llama3-tiny", "--on", "dgx-h100", "--plan", "pp=2,tp=2", "--set", "batch=8", *ROOFLINE),
    "stack in the plan": ("llama3-tiny", "--on", "dgx-h100", "--plan", "dp=2,stack=pytorch-ddp", "--set", "batch=4"),
    "serving": ("llama3-tiny", "--on", "h200", "--set", "mode=serve", "--set", "prompt=64", "--set", "output=8"),
    "file": (SHARDED, "--on", "dgx-h100", "--channels", "1", "--scheduler", "serial", "--slow", "3=0.5"),
}  # fmt: skip


def changed(command: tuple[str, ...], flag: str) -> list[str]:
    """The command with a lever's flags in place of the same ones, or without the one that it names."""
    words = [command[0]]
    given = [(command[at], command[at + 1]) for at in range(1, len(command), 2)]
    if flag.startswith("without "):
        return words + [
            word for name, value in given if name != flag.removeprefix("without ") for word in (name, value)
        ]
    told = shlex.split(flag)
    new = [(told[at], told[at + 1]) for at in range(0, len(told), 2)]
    replaced = {_key(name, value) for name, value in new}
    kept = [(name, value) for name, value in given if _key(name, value) not in replaced]
    return words + [word for pair in (*kept, *new) for word in pair]


def _key(name: str, value: str) -> str:
    return f"{name} {value.partition('=')[0]}" if name == "--set" else name


def answer(words: Sequence[str], capsys: pytest.CaptureFixture[str], levers: str = "none") -> dict[str, Any]:
    app(["predict", *words, "--json", "--levers", levers], standalone_mode=False)  # 3 where it does not fit, returned
    (line,) = capsys.readouterr().out.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_promise_is_what_the_named_flag_gives(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    now = answer(command, capsys, "3")
    assert now["levers"]
    shares = [lever["saved_share"] for lever in now["levers"]]
    assert shares == sorted(shares, reverse=True)
    for lever in now["levers"]:
        then = answer(changed(command, lever["flag"]), capsys)
        assert then["step_time_s"] == pytest.approx(lever["step_time_s"], rel=1e-9), lever
        if lever["throughput_per_s"] is None:
            assert lever["saved_share"] == pytest.approx(1 - then["step_time_s"] / now["step_time_s"], rel=1e-9)
            continue
        assert then["throughput"]["per_s"] == pytest.approx(lever["throughput_per_s"], rel=1e-9), lever
        rates = now["throughput"]["per_s"], then["throughput"]["per_s"]
        assert lever["saved_share"] == pytest.approx(1 - rates[0] / rates[1], rel=1e-9)


TOO_LARGE = {
    "plan": ("llama3-tiny", "--on", "h100-sxm", "--plan", "mbs=512,attention=plain", "--set", "batch=512", *ROOFLINE),
    "settings": (
        "llama3-tiny", "--on", "h100-sxm", "--set", "batch=512", "--set", "remat=none", "--set", "attention=plain", *ROOFLINE,
    ),
    "whole": ("gpt2-tiny", "--on", "h100-sxm", "--set", "batch=2", "--set", "dim=20480", "--set", "vocab=1024", *ROOFLINE),
    "decoding": ("llama3-tiny", "--on", "h100-sxm", "--set", "mode=decode", "--set", "batch=524288", *ROOFLINE),
}  # fmt: skip


@pytest.mark.parametrize("command", TOO_LARGE.values(), ids=TOO_LARGE)
def test_what_is_said_to_fit_fits(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    fixes = answer(command, capsys, "4")["infeasible"]["fixes"]
    assert any(fix["fits"] for fix in fixes)
    assert [fix["fits"] for fix in fixes] == sorted((fix["fits"] for fix in fixes), reverse=True)
    for fix in fixes:
        then = answer(changed(command, fix["flag"]), capsys)
        assert then["feasible"] == fix["fits"], fix
        demand = then["memory_bytes"]["peak"] if then["feasible"] else then["infeasible"]["demand"]
        assert demand == pytest.approx(fix["demand"], rel=1e-9), fix


def test_levers_of_served_requests_tell_the_request() -> None:
    """Arithmetic is the prompt's: the decoding step stays as it is, and the request gets shorter."""
    settings = {"mode": "serve", "prompt": "4096", "output": "2", "batch": "8"}
    now = predict("llama3-tiny", on="h200", settings=settings, levers=6, fidelity="roofline")
    assert now.serving is not None
    assert now.serving.request_s is not None
    assert now.levers
    for lever in now.levers:
        assert lever.request_time_s is not None
        if "batch" not in lever.flag:  # the same requests
            assert lever.saved_s == pytest.approx(now.serving.request_s - lever.request_time_s, rel=1e-9)


def test_of_a_change_its_step_alone_is_worked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ends of the interval are simulated once, and what is rewritten of kernels lowers none again."""
    calls: Counter[str] = Counter()

    def counted(name: str, function: Any) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            calls[name] += 1
            return function(*args, **named)

        return call

    monkeypatch.setattr(timed, "interval_of", counted("intervals", timed.interval_of))
    monkeypatch.setattr(lowering, "read_workload", counted("readings", read_workload))
    monkeypatch.setattr(issue_order, "_planned", counted("plans", issue_order._planned))
    lowering.forget_lowered()
    found = predict(SHARDED, on="dgx-h100", scheduler="serial", levers=6)
    assert len(found.levers) > 1
    assert calls["intervals"] == 1
    assert calls["readings"] == 1
    lowering.forget_lowered()
    calls.clear()
    for overlap in ("", "buckets=1MiB", "prefetch"):
        predict(SHARDED, on="dgx-h100", overlap=overlap)
    assert calls["readings"] == 1
    # Other hardware takes the same order.
    calls.clear()
    for on in ("dgx-h100", "dgx-a100"):
        predict(SHARDED, on=on)
    assert calls["plans"] <= 1
