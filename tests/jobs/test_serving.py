"""Served models: what users notice of a prompt's pass and of decoding steps, alone, together and under plans."""

from __future__ import annotations

from typing import Any

import pytest

import meshcast
from meshcast.base.errors import MeshcastError, UnsupportedError, UsageError
from meshcast.hardware import resolve
from meshcast.jobs.serving import request_lengths
from meshcast.jobs.serving.chunks import Pass, passes_over, with_whole_cache
from meshcast.results.serving import Serving
from meshcast.zoo import hint, zoo

TINY = "llama3-tiny"
REQUEST = {"mode": "serve", "batch": "4", "prompt": "64", "output": "16"}


def test_requests_add_up() -> None:
    serving = Serving(batch=4, cache_bytes=8, prompt_tokens=100, output_tokens=11, ttft_s=1.0, tpot_s=0.1)
    assert serving.request_s == pytest.approx(2.0)
    assert serving.tokens_per_s == pytest.approx(4 * 11 / 2.0)
    assert serving.prompt_tokens_per_s == pytest.approx(400.0)
    alone = Serving(batch=4, cache_bytes=8, tpot_s=0.1)
    assert (alone.tokens_per_s, alone.request_s, alone.prompt_tokens_per_s) == (pytest.approx(40.0), None, None)


@pytest.mark.parametrize(("on", "plan"), [("h100-sxm", None), ("dgx-h100", "tp=2"), ("tpu-v5e", None)])
def test_both_passes_are_one_prediction(on: str, plan: str | None) -> None:
    modelled: dict[str, Any] = {"lowering": "modelled"}
    both = meshcast.predict(TINY, on=on, plan=plan, settings=REQUEST, **modelled)
    rest = {"batch": "4", "context": "80"}
    first = meshcast.predict(f"{TINY}-prefill", on=on, plan=plan, settings={**rest, "seq": "64"}, **modelled)
    step = meshcast.predict(f"{TINY}-decode", on=on, plan=plan, settings=rest, **modelled)
    assert both.serving is not None
    assert first.serving is not None
    assert step.serving is not None
    assert both.serving.ttft_s == first.step_time_s == first.serving.ttft_s
    assert both.serving.tpot_s == step.step_time_s == both.step_time_s == step.serving.tpot_s
    assert both.memory.peak == max(first.memory.peak, step.memory.peak)
    shares = 2 if plan else 1
    # Keys and values of 2 bytes: layers x batch x positions x heads x width.
    config = meshcast.zoo.zoo()[TINY].config
    entries = config.layers * 4 * 80 * config.kv_heads * config.head_dim
    assert both.serving.cache_bytes == 2 * 2 * entries // shares == step.memory.by_role["cache"]
    found = both.to_json()["serving"]
    assert found["ttft_s"] == both.serving.ttft_s
    assert found["tpot_s"] == both.serving.tpot_s
    assert found["tokens_per_s"] == pytest.approx(4 * 16 / (found["ttft_s"] + 15 * found["tpot_s"]))
    text = str(both)
    for row in ("time to first token", "time per output token", "whole requests", "KV cache"):
        assert row in text


@pytest.mark.parametrize(("model", "context"), [("llama3-70b", 4096), ("gpt3-6.7b", 2048)])
def test_a_decoding_step_reads_weights_and_cache_once(model: str, context: int) -> None:
    """No step is faster than memory; with arrays for each layer it is not far from it where memory is all there is."""
    settings = {"layers": "2", "batch": "8", "context": str(context), "mode": "decode"}
    step = meshcast.predict(model, on="h100-sxm", settings=settings)
    config = meshcast.zoo.zoo()[model].config
    # Of an embedding that the head does not share, only the tokens' rows are read.
    unread = 2 * config.vocab * config.dim if model.startswith("llama") else 0
    read = step.memory.by_role["parameter"] - unread + step.memory.by_role["cache"]
    bound = read / resolve("h100-sxm").device.memory_bandwidth
    assert step.step_time_s is not None
    assert bound < step.step_time_s < 1.6 * bound


def test_prompts_may_split_their_positions() -> None:
    """Single positions cannot: their step is that of the plan without `sp`."""
    split, whole = (
        meshcast.predict(TINY, on="dgx-h100", plan=plan, settings=REQUEST, lowering="modelled")
        for plan in ("tp=2,sp=1", "tp=2")
    )
    first = meshcast.predict(
        f"{TINY}-prefill", on="dgx-h100", plan="tp=2,sp=1", lowering="modelled",
        settings={"batch": "4", "seq": "64", "context": "80"},
    )  # fmt: skip
    assert split.serving is not None
    assert whole.serving is not None
    assert split.serving.tpot_s == whole.serving.tpot_s
    assert split.serving.ttft_s == first.step_time_s != whole.serving.ttft_s


def test_a_step_of_more_requests_moves_no_fewer_bytes() -> None:
    """Of 64 experts, six a token: weights that are chosen are copied, so three tokens have the bytes of all experts."""
    moved = [
        meshcast.predict(
            "deepseek-v2-lite-decode",
            on="h100-sxm",
            lowering="modelled",
            settings={"layers": "2", "batch": str(batch), "context": "64"},
        ).hbm_bytes
        for batch in (1, 3, 4, 8, 16)
    ]
    assert moved == sorted(moved)
    # Of one token the products with vectors are written before they are summed; a split product's padded weights are read by all.
    assert moved[0] < 0.66 * moved[-1]


@pytest.mark.parametrize("model", [TINY, "gpt2-tiny", "mamba-tiny"])
def test_layers_of_their_own_compute_the_same(model: str) -> None:
    rest = {"batch": "2"} | ({} if model.startswith("mamba") else {"context": "64"})
    stacked, alone, unsaid = (
        meshcast.predict(f"{model}-decode", on="h100-sxm", lowering="modelled", settings=rest | said)
        for said in ({"scan": "true"}, {"scan": "false"}, {})
    )
    assert unsaid.step_time_s == alone.step_time_s  # what serving engines do is what is meant
    assert alone.flops == pytest.approx(stacked.flops, rel=0.02)
    assert alone.memory.by_role == stacked.memory.by_role
    assert alone.hbm_bytes < stacked.hbm_bytes


@pytest.mark.parametrize(
    ("model", "settings", "plan", "error", "said"),
    [
        (TINY, {"mode": "serve", "prompt": "many"}, None, UsageError, "prompt is a positive integer"),
        (TINY, {"mode": "serve", "output": "0"}, None, UsageError, "output is a positive integer"),
        (TINY, {"mode": "serve", "context": "64"}, None, UsageError, "context follows from prompt and output"),
        (TINY, {"mode": "prefill", "attention": "plain"}, "tp=2", UsageError, "attention is decided by the plan"),
        (
            "gpt2-tiny",
            {"mode": "serve", "prompt": "128"},
            None,
            UsageError,
            "prompt=128 and output=1 are 129 positions",
        ),
        ("gpt2-tiny", {"mode": "serve", "output": "128"}, None, UsageError, "gpt2-tiny has 128"),
        ("resnet50", {"mode": "serve"}, None, UsageError, "does not answer token by token"),
        (TINY, {"mode": "serve"}, "pp=2", UnsupportedError, "pp is for training"),
        (f"{TINY}-decode", {}, "tp=2,remat=full", UnsupportedError, "remat is for training"),
        (f"{TINY}-decode", {}, "tp=2,sp=1", UnsupportedError, "sp=1 splits positions"),
    ],
)
def test_what_is_refused(
    model: str, settings: dict[str, str], plan: str | None, error: type[MeshcastError], said: str
) -> None:
    with pytest.raises(error, match=said):
        meshcast.predict(model, on="dgx-h100", plan=plan, settings=settings)


@pytest.mark.parametrize(
    ("model", "settings", "lengths"),
    [
        ("gpt2-small", {}, (896, 128)),
        ("gpt2-small", {"prompt": "1000"}, (1000, 24)),
        ("gpt2-small", {"output": "1000"}, (24, 1000)),
        ("gpt2-small", {"positions": "4096"}, (1024, 128)),
        ("gpt2-tiny", {}, (64, 64)),
        ("llama3-tiny", {}, (1024, 128)),
    ],
)
def test_requests_fit_the_positions_of_a_model(model: str, settings: dict[str, str], lengths: tuple[int, int]) -> None:
    assert request_lengths(meshcast.zoo.zoo()[model], settings) == lengths


def test_a_model_with_few_positions_serves_by_default() -> None:
    found = meshcast.predict("gpt2-tiny", on="h100-sxm", settings={"mode": "serve"}, lowering="modelled")
    assert found.serving is not None
    assert (found.serving.prompt_tokens, found.serving.output_tokens) == (64, 64)


@pytest.mark.parametrize(("model", "has_cache"), [("mamba-tiny", True), ("t5-tiny", True)])
def test_models_without_a_context_serve_too(model: str, has_cache: bool) -> None:
    """A state of one size has no length, an encoder's input and its answers have two."""
    short = meshcast.predict(model, on="h100-sxm", settings=REQUEST)
    long = meshcast.predict(model, on="h100-sxm", settings={**REQUEST, "prompt": "256"})
    assert short.serving is not None
    assert long.serving is not None
    assert short.serving.cache_bytes > 0 if has_cache else not short.serving.cache_bytes
    grows = long.serving.cache_bytes > short.serving.cache_bytes
    assert grows == model.startswith("t5")


def test_prompts_attend_by_fused_kernels_where_asked_for() -> None:
    settings = {**REQUEST, "prompt": "1024"}
    plain = meshcast.predict(TINY, on="h100-sxm", settings={**settings, "attention": "plain"}, lowering="modelled")
    by_plan = meshcast.predict(TINY, on="h100-sxm", plan="attention=flash", settings=settings, lowering="modelled")
    stack = meshcast.Options(on="h100-sxm", settings=settings, lowering="modelled", attention="flash")
    by_stack = meshcast.predict(TINY, stack)
    assert plain.serving is not None
    assert by_plan.serving is not None
    assert by_stack.serving is not None
    assert by_plan.serving.ttft_s == by_stack.serving.ttft_s
    assert by_plan.serving.ttft_s != plain.serving.ttft_s
    assert by_plan.serving.tpot_s == plain.serving.tpot_s == by_stack.serving.tpot_s


def test_weights_in_fewer_bits_take_less_room_and_less_time_to_read() -> None:
    asked = {"mode": "decode", "layers": "2", "batch": "8", "context": "256"}
    steps = {
        name: meshcast.predict("llama3-8b", on="h200", settings={**asked, "weight_dtype": name}, lowering="modelled")
        for name in ("none", "int8", "int4")
    }
    times = [step.step_time_s for step in steps.values()]
    assert all(times)
    assert times == sorted(times, reverse=True)  # type: ignore[type-var]
    held = {name: step.memory.by_role["parameter"] for name, step in steps.items()}
    matrices = 2 * (4096 * (4096 + 1024 + 1024) + 4096 * 4096 + 3 * 4096 * 14336)
    assert held["none"] - held["int8"] == matrices
    assert held["int8"] - held["int4"] == matrices // 2


@pytest.mark.parametrize(("name", "value"), [("param_dtype", "int4"), ("weight_dtype", "int3")])
def test_types_that_are_none(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"{name}={value}"):
        meshcast.predict(TINY, on="h200", settings={"mode": "decode", name: value})


def test_served_models_are_compared_by_what_users_notice() -> None:
    found = meshcast.compare(TINY, on=["h200", "h100-sxm"], fidelities=["roofline"], settings=REQUEST)
    alone = meshcast.predict(TINY, on="h200", fidelity="roofline", settings=REQUEST)
    assert alone.serving is not None
    row = next(row for row in found.table() if row["on"] == "h200")
    assert (row["ttft_s"], row["tpot_s"]) == (alone.serving.ttft_s, alone.serving.tpot_s)
    assert "first token" in str(found)
    with pytest.raises(UsageError, match="two programs"):
        meshcast.prepare(TINY, meshcast.Options(on="h200", settings=REQUEST))


def test_passes_over_prompts_by_hand() -> None:
    """Whole prompts as long as they fit a chunk, the rest in a pass of its own; of long ones the two ends, weighed."""
    assert passes_over(10, 2048, 8192, 1, resumes=True) == [
        Pass(times=2, batch=4, tokens=2048),
        Pass(times=1, batch=2, tokens=2048),
    ]
    assert passes_over(16, 2048, 8192, 8, resumes=True) == [Pass(times=1, batch=16, tokens=2048)]
    assert passes_over(2, 20_000, 8192, 1, resumes=True) == [
        Pass(times=2.0, batch=1, tokens=8192),
        Pass(times=2.0, batch=1, tokens=8192, past=8192),
        Pass(times=2, batch=1, tokens=3616, past=16384),
    ]
    assert passes_over(3, 20_000, 8192, 1, resumes=False) == [Pass(times=3, batch=1, tokens=20_000)]


def test_prompts_are_read_in_chunks() -> None:
    """Time adds up over passes, activations are those of one pass, and all caches are there throughout."""

    def asked(mode: str, **settings: str) -> meshcast.Prediction:
        told = {"mode": mode, "layers": "2", **settings}
        return meshcast.predict(TINY, on="h100-sxm", settings=told, lowering="modelled", levers=False)

    request = {"batch": "8", "prompt": "64", "output": "64"}
    at_once, chunked = (asked("serve", **request, prefill_chunk=size) for size in ("512", "64"))
    alone = asked("prefill", batch="1", seq="64", context="128")
    assert at_once.serving is not None
    assert chunked.serving is not None
    assert (at_once.serving.passes, chunked.serving.passes) == (1, 8)
    assert chunked.serving.ttft_s == pytest.approx(8 * (alone.step_time_s or 0))
    assert chunked.serving.tpot_s == at_once.serving.tpot_s
    assert chunked.memory.by_role["cache"] == at_once.memory.by_role["cache"] == 8 * alone.memory.by_role["cache"]
    assert chunked.memory.temporaries < at_once.memory.temporaries
    long = asked("serve", batch="1", prompt="256", output="64", prefill_chunk="64").serving
    ends = [asked("prefill", batch="1", seq="64", context="320", past=past).step_time_s or 0 for past in ("0", "192")]
    assert long is not None
    assert long.passes == 4
    assert long.ttft_s == pytest.approx(2 * sum(ends))


def test_caches_that_leave_no_room_for_a_pass_are_told() -> None:
    """The pass over some prompts fits alone, and not beside the caches of all of them."""
    alone = meshcast.predict(TINY, on="h100-sxm", settings={"mode": "prefill", "batch": "1", "seq": "64"}, levers=False)
    beside = with_whole_cache(alone, alone.capacity_bytes)
    assert beside.infeasible is not None
    assert (beside.feasible, beside.timed, beside.top_kernels) == (False, None, ())
    assert with_whole_cache(alone, 0).feasible


def test_serving_is_among_the_modes() -> None:
    assert zoo()["llama3-tiny"].all_modes == ("train", "forward", "prefill", "decode", "serve")
    assert zoo()["bert-tiny"].all_modes == ("train", "forward")
    with pytest.raises(UsageError, match="has no mode 'serving'") as caught:
        meshcast.predict(TINY, settings={"mode": "serving"})
    assert "its modes are train, forward, prefill, decode, serve" in str(caught.value)
    assert "--set mode=serve" in hint("llama3-tiny-serve")
