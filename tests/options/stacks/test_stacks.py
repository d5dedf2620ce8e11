"""Stacks: every shipped file, what `--stack` brings, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshcast import predict
from meshcast.base.errors import InputError, UnsupportedError, UsageError
from meshcast.cli.app import app
from meshcast.hardware import load_device, resolve
from meshcast.jobs.levers import Question
from meshcast.jobs.levers.running import of_running
from meshcast.jobs.planned.stacked import assumed_kernels, with_stack
from meshcast.lower.compiled import real_compilers
from meshcast.options.fidelities import chosen_lowering
from meshcast.options.options import Options
from meshcast.options.stacks import choices_of, load_stack, stack_names
from meshcast.programs.target import CaptureOptions, load
from meshcast.simulate.host import HostCosts

FIXTURES = Path(__file__).parents[2] / "fixtures"
OWN = """\
schema = "meshcast.stack/1"
name = "own"
title = "One's own"
base = "xla"

[kernels]
fusion = "eager"

[overlap]
scheduler = "program"
rewrites = "buckets=1MiB"

[host]
launch = { value = "20 us", source = "assumption", note = "slow" }
"""


@pytest.mark.parametrize("name", stack_names())
def test_shipped_stacks_load_and_say_where_their_numbers_come_from(name: str) -> None:
    stack = load_stack(name)
    assert stack.name == name
    assert all(fact.note or fact.source in stack.sources for fact in stack.facts.values())


@pytest.mark.parametrize("name", stack_names())
def test_every_choice_of_a_shipped_stack_has_a_source(name: str) -> None:
    stack = load_stack(name)
    for choice in choices_of(stack):
        assert choice.source in (*stack.sources, "assumption", "default"), choice
        assert choice.note or choice.source != "assumption", choice


def test_megatron_is_this_year_s_and_the_papers_keep_theirs() -> None:
    """Narayanan 2021 and Korthikanti 2022 had plain attention and waited for their collectives."""
    now, then = load_stack("megatron"), load_stack("megatron-2022")
    assert (now.attention, now.attention_library, now.zero, now.sequence_parallel) == ("flash", "cudnn", 1, True)
    assert (now.scheduler, now.overlap) == (
        "latency-hiding",
        "async-tp,one-copy,cached-weights,local-scales,narrow-gathers,engine-casts",
    )
    assert (then.attention, then.scheduler, then.overlap, then.zero) == ("plain", "program", "", 0)
    assert dict((each.name, each.source) for each in choices_of(now))["kernels.attention"] == "example"


def test_stacks_are_listed_and_shown_with_their_sources(tmp_path: Path) -> None:
    listed = json.loads(CliRunner().invoke(app, ["stacks", "--json"]).stdout)
    assert [each["name"] for each in listed["stacks"]] == list(stack_names())
    assert "megatron-2022" in CliRunner().invoke(app, ["stacks"]).stdout
    shown = json.loads(CliRunner().invoke(app, ["stacks", "megatron", "--json"]).stdout)
    assert shown["choices"]["defaults.zero"] == {
        "value": 1, "source": "example", "note": "--use-distributed-optimizer", "used_by": "plan", "plan": "zero=1"
    }  # fmt: skip
    assert "Megatron-LM" in shown["sources"]["example"]["title"]
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    own = CliRunner().invoke(app, ["stacks", str(path)])
    assert own.exit_code == 0, own.output
    assert "rewrites" in own.stdout
    assert isinstance(CliRunner().invoke(app, ["stacks", "megatrom"]).exception, UnsupportedError)


def test_what_predictions_take_and_what_a_plan_has_to_say_are_told_apart() -> None:
    """Whatever `Options.with_stack` brings is used by predictions; the words for plans are those of `Stack.recipe`."""
    stack = load_stack("megatron")
    shown = json.loads(CliRunner().invoke(app, ["stacks", "megatron", "--json"]).stdout)["choices"]
    words = {each["plan"] for each in shown.values() if each["used_by"] == "plan"}
    assert words == {"remat=none", "sp=1", "zero=1", "gradients=bf16"}
    assert all(each["plan"] is None for each in shown.values() if each["used_by"] != "plan")
    brought = Options().with_stack(stack).brought
    assert brought is not None
    fields = {name.partition(".")[2] for name, each in shown.items() if each["used_by"] == "predictions"}
    assert set(brought.fields) - {"overlap", "host_costs"} <= fields
    assert shown["kernels.products"]["used_by"] == "nothing"
    text = CliRunner().invoke(app, ["stacks", "megatron"]).stdout
    taken, said = text.split("Its recipes choose, and a plan has to say")
    assert "Every prediction with --stack megatron takes" in taken
    assert "defaults.zero" not in taken
    assert "host.launch" not in said
    assert "sp=1" in said


def test_a_choice_may_have_a_source_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    table = 'fusion = { value = "eager", source = "assumption", note = "as measured by hand" }'
    path.write_text(OWN.replace('fusion = "eager"', table))
    found = {each.name: each for each in choices_of(load_stack(path))}
    assert (found["kernels.fusion"].value, found["kernels.fusion"].note) == ("eager", "as measured by hand")
    path.write_text(OWN.replace('fusion = "eager"', table.replace("assumption", "hearsay")))
    with pytest.raises(InputError, match="source 'hearsay' is not under"):
        load_stack(path)


def test_the_stacks_that_runs_name_are_there() -> None:
    assert {"xla", "megatron", "megatron-2022", "maxtext", "pytorch-fsdp", "pytorch-compile", "nemo"} <= set(
        stack_names()
    )


def test_a_base_gives_what_a_file_leaves_out(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    stack = load_stack(path)
    assert (stack.fusion, stack.attention) == ("eager", load_stack("xla").attention)
    assert stack.host == dataclasses.replace(HostCosts(), launch=20e-6)


def test_a_stack_gives_only_what_is_not_chosen() -> None:
    stack = load_stack("pytorch-fsdp")
    chosen = Options(overlap="async-tp").with_stack(stack, but=("overlap",))
    assert chosen.lowering.overlap.text == "async-tp"
    assert (chosen.run.scheduler, chosen.lowering.fusion) == (stack.scheduler, stack.fusion)
    assert chosen.run.host_costs == stack.host


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('scheduler = "program"', 'scheduler = "best"', "expected one of"),
        ("buckets=1MiB", "bucket=1MiB", "no overlap"),
        ("20 us", "20 GB", "launch"),
        ('fusion = "eager"', 'fusions = "eager"', "unknown key"),
        ("buckets=1MiB", "gathers=2", "gathers"),  # the program's order does not look at them
    ],
)
def test_mistakes_are_told_with_their_line(tmp_path: Path, before: str, after: str, said: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(OWN.replace(before, after))
    with pytest.raises(InputError, match=said) as caught:
        load_stack(path)
    assert caught.value.where is not None
    assert "own.toml:" in caught.value.where


def test_an_unknown_stack_is_named_with_the_nearest() -> None:
    with pytest.raises(UnsupportedError, match="no stack 'megatrom'") as caught:
        load_stack("megatrom")
    assert "megatron" in str(caught.value)


def test_an_eager_framework_launches_more_and_moves_more() -> None:
    asked = {"on": "h100-sxm", "settings": {"batch": "8", "layers": "2"}, "lowering": "modelled"}
    compiled = predict("gpt2-small", Options(**asked))  # type: ignore[arg-type]
    eager = predict("gpt2-small", Options(**asked, fusion="eager"))  # type: ignore[arg-type]
    assert eager.kernels > compiled.kernels
    assert eager.hbm_bytes > compiled.hbm_bytes
    assert eager.flops == compiled.flops


def test_a_slow_host_bounds_small_programs() -> None:
    asked = {"on": "h100-sxm", "lowering": "modelled", "host": "on"}
    quick = predict("gpt2-tiny", Options(**asked))  # type: ignore[arg-type]
    slow = predict("gpt2-tiny", Options(**asked, host_costs=HostCosts(graph_kernel=100e-6)))  # type: ignore[arg-type]
    assert quick.step_time_s
    assert slow.step_time_s
    assert slow.step_time_s > quick.step_time_s


def test_a_stack_without_graphs_pays_its_launch_cost_for_every_kernel(tmp_path: Path) -> None:
    path = tmp_path / "slow.toml"
    text = OWN.replace('base = "xla"', 'base = "megatron"').replace("20 us", "600 us")
    path.write_text(text)
    asked = Options(on="h100-sxm", host="on")
    usual = predict("gpt2-tiny", asked.with_stack(load_stack("megatron"))).step_time_s
    slow = predict("gpt2-tiny", asked.with_stack(load_stack(path)))
    assert slow.step_time_s
    assert usual
    assert slow.step_time_s > 20 * usual
    assert slow.step_time_s >= slow.kernels * 500e-6


def test_costs_of_graphs_that_are_not_there_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    graph = 'graphs = false\ngraph_kernel = { value = "1 us", source = "assumption", note = "why" }\n'
    path.write_text(OWN + graph)
    with pytest.raises(InputError, match="no CUDA graphs"):
        load_stack(path)


def test_eager_frameworks_are_bound_by_their_host_at_small_batches() -> None:
    """Measured on an H200 (data/measured/h200-torch): 25.9 ms for ResNet-50, one image, in 923 launches."""
    asked = Options(on="h200", settings={"batch": "1"})
    eager = predict("resnet18", asked.with_stack(load_stack("pytorch-ddp")))
    compiled = predict("resnet18", asked.with_stack(load_stack("xla")))
    assert eager.step_time_s
    assert compiled.step_time_s
    assert eager.step_time_s > compiled.step_time_s
    assert eager.step_time_s == pytest.approx(25e-6 * eager.kernels, rel=0.05)


def test_what_is_written_on_the_command_line_wins_over_the_stack() -> None:
    """A scheduler that is written, though it is the default, is not the stack's."""

    def said(*words: str) -> dict[str, object]:
        command = [
            "predict",
            "gpt2-tiny",
            "--on",
            "dgx-h100",
            "--mesh",
            "fsdp=8",
            "--set",
            "batch=8",
            "--host",
            "off",
            "--levers",
            "none",
            "--json",
            *words,
        ]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
        found: dict[str, object] = json.loads(result.stdout)
        return found

    stack = ("--stack", "megatron-2022")
    own, program = said("--scheduler", "latency-hiding", *stack), said("--scheduler", "program", *stack)
    assert said(*stack)["step_time_s"] == program["step_time_s"]
    assert own["step_time_s"] != program["step_time_s"]


@pytest.mark.parametrize(
    ("name", "ragged", "context"),
    [
        ("xla", "masked", "all-gather"),
        ("maxtext", "masked", "all-gather"),
        ("megatron", "grouped", "ring"),
        ("nemo", "grouped", "ring"),
        ("pytorch-fsdp", "grouped", "parts"),
        ("megatron-2022", "grouped", "parts"),
    ],
)
def test_shipped_files_say_how_experts_and_split_sequences_run(name: str, ragged: str, context: str) -> None:
    stack = load_stack(name)
    assert (stack.ragged, stack.context_attention) == (ragged, context)
    assert {"kernels.ragged", "defaults.context_attention"} <= stack.said


def test_what_a_file_leaves_open_is_as_without_a_stack(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        'schema = "meshcast.stack/1"\nname = "own"\ntitle = "One\'s own"\n'
        '[kernels]\nfusion = "compiler"\nproducts = "cuBLAS"\nattention = "auto"\n'
        '[overlap]\nscheduler = "latency-hiding"\nchannels = 0\n'
    )
    stack, default = load_stack(path), Options()
    for name in ("attention_library", "layers", "ragged", "context_attention"):
        assert getattr(stack, name) == default.value(name)


@pytest.mark.parametrize(
    "other", [{"fusion": "eager"}, {"attention_library": "flash-2"}, {"layers": "separate"}, {"ragged": "grouped"}]
)
def test_a_compilers_kernels_are_no_other_frameworks(other: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked, device = Options(on="h100-sxm", **other), load_device("h100-sxm")  # type: ignore[arg-type]
    monkeypatch.setattr(
        real_compilers, "why_not_compiled", lambda program, device: None
    )  # as where the compiler is installed
    program = load(FIXTURES / "tanh.mlir", CaptureOptions(platform=device.platform))
    assert chosen_lowering(Options(on="h100-sxm"), program, device) == "compiled"
    assert chosen_lowering(asked, program, device) == "modelled"
    (said,) = (f"{name}={value}" for name, value in other.items())
    for compiled in (asked.having(lowering="compiled"), asked.having(fidelity="compiled")):
        with pytest.raises(UsageError, match=said):
            chosen_lowering(compiled, program, device)


def test_tpus_have_no_eager_framework() -> None:
    with pytest.raises(UsageError, match="eager"):
        predict("gpt2-tiny", Options(on="tpu-v5e", fusion="eager"))


def test_stacks_of_one_framework_are_known_by_what_their_files_say(tmp_path: Path) -> None:
    assert all(load_stack(name).framework for name in stack_names())
    (said,) = assumed_kernels("torch:model", None)
    assert (
        "--stack pytorch-ddp or pytorch-eager or pytorch-fsdp (eager) or apex or pytorch-compile assumes those" in said
    )
    file = tmp_path / "fork.toml"
    file.write_text('schema = "meshcast.stack/1"\nname = "fork"\ntitle = "Ours"\nbase = "pytorch-fsdp"\n')
    options = with_stack(Options(on="h200", settings={"layers": "1", "batch": "1", "seq": "64"}, levers=False), file)
    prediction = predict("llama3-tiny", options)
    question = Question(options=options, asked=None, prediction=prediction, cluster=resolve("h200"))
    assert "--stack pytorch-compile" in {candidate.flag for candidate in of_running(question)}


def test_a_bad_value_in_an_inline_table_is_in_the_file_that_has_it_not_in_its_base(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    head = 'schema = "meshcast.stack/1"\nname = "own"\ntitle = "Ours"\nbase = "pytorch-fsdp"\n'
    file.write_text(head + 'defaults = { zero = "nan 0", note = "every replica has all of it" }\n')
    with pytest.raises(InputError, match=r"defaults\.zero") as caught:
        load_stack(file)
    assert caught.value.where == f"{file}:5"


@pytest.mark.parametrize(
    ("read", "file", "why"),
    [
        (load_stack, "device.toml", "a stack is asked for, and this file describes a device"),
        (load_stack, "cluster.toml", "a stack is asked for, and this file describes a cluster"),
        (load_device, "stack.toml", "a device is asked for, and this file describes a stack"),
    ],
)
def test_a_file_of_another_kind_is_told_by_what_it_is(read: Callable[[Path], object], file: str, why: str) -> None:
    """And not by its base, which is looked for among files of the kind that is asked for."""
    path = Path(__file__).parents[2] / "golden/inputs" / file
    with pytest.raises(InputError, match=why) as refused:
        read(path)
    assert refused.value.where == f"{path}:1"
