"""Memory is judged before anything is timed: what does not fit runs no estimator and no simulation, and says what it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from meshcast import Options, Part, Pipeline, capture, pipeline_of, predict, prepare
from meshcast.base import UnsupportedError, UsageError
from meshcast.estimate import Estimates, Support, chain
from meshcast.hardware import Conditions, Device, LinkCondition
from meshcast.jobs import Run
from meshcast.jobs.pipeline import replicas
from meshcast.jobs.pipeline import timed as pipeline_timed
from meshcast.jobs.program import run as program_run
from meshcast.jobs.program.known_steps import forget_steps
from meshcast.jobs.program.timed import timed_prediction
from meshcast.lower import Kernel
from meshcast.programs import Program
from meshcast.results import Prediction, Timed
from meshcast.simulate import Simulator

SHARDED = Path(__file__).parents[1] / "fixtures/sharded.mlir"
SMALL = "+memory.capacity=1MiB"
COUNTED = ("flops", "hbm_bytes", "communication_bytes", "kernels", "memory", "fidelity", "capacity_bytes")
X, W = jax.ShapeDtypeStruct((256, 512), "float32"), {"w": jax.ShapeDtypeStruct((512, 512), "float32")}


@pytest.fixture
def timing(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often kernels were estimated, and programs or pipelines simulated; no step is known from before."""
    forget_steps()
    calls: Counter[str] = Counter()

    def count(owner: Any, name: str, what: str) -> None:
        before = getattr(owner, name)

        def counting(*args: Any, **kwargs: Any) -> Any:
            calls[what] += 1
            return before(*args, **kwargs)

        monkeypatch.setattr(owner, name, counting)

    count(chain, "chain_answers", "estimated")  # which every estimate begins with, also where answers are known
    count(Simulator, "run", "simulated")
    count(Simulator, "duration", "simulated")
    count(replicas, "simulate_pipeline", "pipeline")
    count(pipeline_timed, "simulate_pipeline", "pipeline")
    return calls


def forward(params: Any, x: Any) -> Any:
    return jnp.tanh(x @ params["w"]), {"x": x}


def backward(params: Any, saved: Any, dy: Any, gradients: Any) -> Any:
    _, vjp = jax.vjp(lambda w, x: jnp.tanh(x @ w), params["w"], saved["x"])
    dw, dx = vjp(dy)
    return dx, {"w": gradients["w"] + dw}


def update(params: Any, gradients: Any, opt_state: Any) -> Any:
    return {"w": params["w"] - opt_state["w"] * gradients["w"]}, opt_state


def two_stages(host_state_pieces: int = 0) -> Pipeline:
    each = (backward, (W, {"x": X}, X, W), {"donate_argnums": (3,)})
    part = Part(name="half", forward=(forward, (W, X)), backward=each, update=(update, (W, W, W)), count=2)
    return pipeline_of([part], microbatches=4, host_state_pieces=host_state_pieces)


TARGETS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "a program": (lambda: SHARDED, {"on": "dgx-h100"}),
    "a model": (lambda: "llama3-tiny", {"on": "h200"}),
    "a plan": (lambda: "llama3-tiny", {"on": "dgx-h200", "plan": "tp=2,dp=2"}),
    "a plan with stages": (lambda: "llama3-tiny", {"on": "dgx-h100", "plan": "pp=2,microbatches=4"}),
    "a pipeline": (two_stages, {"on": "dgx-h100"}),
    "its state at the host": (lambda: two_stages(4), {"on": "dgx-h100"}),
}


@pytest.mark.parametrize("kind", TARGETS)
def test_what_does_not_fit_is_not_timed(kind: str, timing: Counter[str]) -> None:
    """Nor does what it counts change: the same on devices with room counts as much."""
    target, options = TARGETS[kind][0](), TARGETS[kind][1]
    small = predict(target, **{**options, "on": f"{options['on']}{SMALL}"}, levers=False)
    assert small.infeasible is not None
    assert small.timed is None
    assert not timing
    large = predict(target, **options, levers=False)
    assert large.timed is not None
    assert timing["estimated"]
    assert timing["simulated"]
    for name in ("flops", "hbm_bytes", "communication_bytes", "kernels", "memory", "fidelity"):
        assert getattr(small, name) == getattr(large, name), name


def test_what_is_known_untimed_is_what_a_timed_answer_says() -> None:
    for target, on in ((SHARDED, "dgx-h100"), ("llama3-tiny", "h200"), ("llama3-tiny", "tpu-v5e")):
        run = prepare(target, Options(on=on))
        untimed, timed = run.untimed(), run.predict()
        assert untimed.timed is None
        assert [getattr(untimed, name) for name in COUNTED] == [getattr(timed, name) for name in COUNTED]


class _Claims:
    """An estimator of some kernels that must not be asked for a time."""

    def __init__(self, name: str, matrices: bool) -> None:
        self.name, self.fidelity, self._matrices = name, f"fidelity of {name}", matrices

    def supports(self, kernel: Kernel, device: Device) -> Support:
        """Kernels that multiply matrices, or the others."""
        return Support(level="yes" if bool(kernel.matrix_flops) is self._matrices else "no", reason="not mine")

    def estimate(self, kernels: Sequence[Kernel], device: Device) -> Estimates:
        """Never."""
        raise AssertionError(f"{self.name} was asked for a time")


def _chain_of(rows: int) -> Program:
    """A product of `rows` x 512 x 512, and a tanh of 64 MiB."""
    a, b = jax.ShapeDtypeStruct((rows, 512), "float32"), jax.ShapeDtypeStruct((512, 512), "float32")
    return capture(lambda a, b, c: (a @ b, jnp.tanh(c)), a, b, jax.ShapeDtypeStruct((4096, 4096), "float32"))


@pytest.mark.parametrize(("rows", "most"), [(16, "others"), (2**20, "products")])
def test_the_fidelity_of_most_of_the_work_is_named(rows: int, most: str) -> None:
    run = prepare(_chain_of(rows), Options(on=f"h100-sxm{SMALL}"))
    both = (_Claims("products", matrices=True), _Claims("others", matrices=False))
    assert replace(run, estimators=both).predict().fidelity == f"fidelity of {most}"
    with pytest.raises(UnsupportedError, match="no estimator answers"):
        replace(run, estimators=both[:1]).predict()


def test_of_branches_the_costlier_one_is_counted_still(timing: Counter[str]) -> None:
    side = jax.ShapeDtypeStruct((1024, 1024), "float32")

    def either(which: Any, x: Any) -> Any:
        return jax.lax.cond(which > 0, lambda x: jnp.tanh(x @ x) @ x, lambda x: x + 1, x)

    program = capture(either, jax.ShapeDtypeStruct((), "int32"), side)
    small, large = (predict(program, on=on, levers=False) for on in (f"h200{SMALL}", "h200"))
    assert small.timed is None
    assert (small.kernels, small.hbm_bytes) == (large.kernels, large.hbm_bytes)
    assert timing["simulated"]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"conditions": Conditions(links=(LinkCondition(level="carrier-pigeon", share=0.5),))}, "carrier-pigeon"),
        ({"conditions": Conditions(speed={99: 0.5})}, "no device 99"),
        ({"conditions": Conditions(kinds={0: "tpu-v5e"})}, "is lowered for"),
        ({"beside": ("all_reduce:1GiB:0-7",)}, "knows no links"),
    ],
)
def test_what_cannot_be_asked_is_refused_all_the_same(asked: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        predict(SHARDED, on=f"dgx-h100{SMALL}", levers=False, **asked)


def test_the_same_names_are_read_with_and_without_times() -> None:
    timed, untimed = (predict(SHARDED, on=f"dgx-h100{size}", levers=False) for size in ("", SMALL))
    assert timed.timed is not None
    for field in fields(Timed):
        assert getattr(timed, field.name) is getattr(timed.timed, field.name)
        assert getattr(untimed, field.name) in (None, (), {})
    assert not {field.name for field in fields(Timed)} & {field.name for field in fields(Prediction)}


@pytest.mark.parametrize(("short", "timed"), [(0, 4), (1, 0), (100_000, 0)])
def test_of_requests_no_pass_is_timed_that_the_answer_does_not_need(
    short: int, timed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prompt in three kinds of chunks and the decoding step: all of them where they fit, none where one does not."""
    found: list[str] = []

    def counting(run: Run) -> Prediction:
        found.append(run.workload.name)
        return timed_prediction(run)

    monkeypatch.setattr(program_run, "timed_prediction", counting)
    settings = {"mode": "serve", "prompt": "100", "output": "8", "prefill_chunk": "32", "batch": "1"}
    room = predict("llama3-tiny", on="h200", settings=settings, levers=False).memory.peak - short
    found.clear()
    answer = predict("llama3-tiny", on=f"h200+memory.capacity={room}B", settings=settings, levers=False)
    assert answer.feasible == (not short)
    assert len(found) == timed
    assert answer.name == "llama3-tiny, serving"


def test_of_requests_that_do_not_fit_the_answer_is_the_pass_that_needs_most() -> None:
    """Caches of all prompts are beside each pass; one may not fit then that fits by itself."""
    settings = {"mode": "serve", "prompt": "512", "output": "8", "prefill_chunk": "64", "batch": "64"}
    whole = predict("llama3-tiny", on="h200", settings=settings, levers=False)
    assert whole.feasible
    room = whole.memory.peak - 1
    tight = predict("llama3-tiny", on=f"h200+memory.capacity={room}B", settings=settings, levers=False)
    assert tight.infeasible is not None
    assert (tight.infeasible.demand, tight.infeasible.bound) == (whole.memory.peak, room)
    assert tight.memory == whole.memory
