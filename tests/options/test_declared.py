"""An option is declared once: keyword, flag, input, check and key come from its field."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from meshcast.base import UsageError
from meshcast.cli import flags
from meshcast.cli.app import VERBS, app
from meshcast.cli.flags import FlagValues, runs
from meshcast.jobs.described import inputs_of
from meshcast.jobs.traced.heeded import check_asked, flags_by_treatment
from meshcast.lower import Overlap
from meshcast.options import declared, options, parts
from meshcast.options.declared import declared_fields, key_of, option
from meshcast.options.network_options import NetworkOptions
from meshcast.options.options import KEPT, Options, option_places
from meshcast.options.parts import PART_KINDS, OptionParts
from meshcast.options.run_options import RunOptions
from meshcast.zoo import Plan
from tests.jobs.described.test_inputs import H100
from tests.options.other_values import other_value
from tests.results.test_printer import ONE

CLI = Path(flags.__file__).parent


def _commands() -> Iterator[tuple[str, Any]]:
    """Every command of every verb that has flags of options, by its words."""
    for verb in VERBS:
        module = importlib.import_module(f"meshcast.cli.{verb.replace(' ', '_')}")
        own = module.app.registered_commands if hasattr(module, "app") else ()
        found = {f"{verb} {each.name}": each.callback for each in own} or {
            verb: getattr(module, f"{verb.replace(' ', '_')}_command")
        }
        yield from ((words, command) for words, command in found.items() if hasattr(command, "stages"))


COMMANDS = dict(_commands())
# Flags of options that a verb has as its own: several at once, or with other words.
OWN = {
    "compare": {"on", "fidelity"}, "plan": {"devices"}, "report": {"fidelity"}, "validate sets": {"fidelity"},
    "tables plan": {"host"},
}  # fmt: skip


def test_every_field_of_a_part_is_declared_under_a_name_of_its_own() -> None:
    kinds = [Options, *PART_KINDS.values()]
    assert tuple(PART_KINDS) == OptionParts._fields
    for kind in PART_KINDS.values():
        assert [each.name for each in fields(kind)] == [each.attribute for each in declared_fields(kind).values()]
    assert sum(len(declared_fields(kind)) for kind in kinds) == len(option_places())
    assert not option_places().keys() & set(KEPT)


@pytest.mark.parametrize("name", option_places())
def test_an_option_has_a_flag_or_says_why_not(name: str) -> None:
    said = option_places()[name].field.declaration
    assert bool(said.flags) != bool(said.no_flag)
    assert all(each.flag.startswith("--") and each.help for each in said.flags)
    assert bool(said.one_of) == bool(said.wrong)
    assert bool(said.told) != bool(said.untold)
    assert bool(said.read) == bool(said.takes)


@pytest.mark.parametrize("verb", COMMANDS)
def test_a_verb_has_the_flags_of_the_stages_that_it_runs_or_says_why_not(verb: str) -> None:
    command = COMMANDS[verb]
    without: dict[str, str] = command.without
    found: Any = typer.main.get_command(app)
    for word in [verb] if verb in found.commands else verb.split():
        found = found.commands[word]
    taken = {each for one in found.params for each in one.opts}
    for name, place in option_places().items():
        written = {each.flag for each in place.field.declaration.flags if each.flag not in without}
        of_verb = place.part in (None, *command.stages) or name in command.besides
        if of_verb and written and name not in without:
            assert written <= taken
        else:
            assert name in OWN.get(verb, ()) or not written & taken
    assert all(without.values())
    single = {each.flag for place in option_places().values() for each in place.field.declaration.flags}
    assert without.keys() <= option_places().keys() | single | {"--stack"}
    assert ("--stack" in taken) == (bool({"lowering", "run"} & set(command.stages)) and "--stack" not in without)


def test_no_verb_makes_options_by_hand() -> None:
    """Else a new option would not reach it. A plan's space asks for the default's hardware alone."""
    assert len(COMMANDS) > 14
    by_hand = {
        path.name
        for path in CLI.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Options" and (node.args or node.keywords)
    }
    assert by_hand == {"flags.py"}


@pytest.mark.parametrize("name", option_places())
def test_an_option_changes_the_key_of_its_stage(name: str) -> None:
    before, after = Options(), Options(**{name: other_value(name)})
    part = option_places()[name].part
    for each in PART_KINDS:
        assert (key_of(getattr(before, each)) != key_of(getattr(after, each))) == (each == part)
    assert before.key != after.key
    assert after.differing == {name}


@dataclass(frozen=True, slots=True, kw_only=True)
class _WithSpeed(RunOptions):
    """A stage with one option more."""

    speed: str = option(
        "brisk", flag="--speed", help="How fast.", one_of=lambda: ("brisk", "slow"), wrong="no speed {}"
    )


@pytest.fixture
def one_more(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if `RunOptions` had the field."""
    kept = (
        parts.part_places,
        parts.default_parts,
        options.option_places,
        options._chosen,
        options._default,
        flags.flag,
    )
    for each in kept:
        each.cache_clear()
    monkeypatch.setitem(parts.PART_KINDS, "run", _WithSpeed)
    yield
    monkeypatch.undo()
    for each in kept:
        each.cache_clear()
    declared._FIELDS.pop(_WithSpeed, None)


@pytest.mark.usefixtures("one_more")
def test_a_new_field_is_a_keyword_a_flag_an_input_a_check_and_a_part_of_keys() -> None:
    asked = Options().changed({"speed": "slow"}, where="test")
    assert asked.value("speed") == "slow"
    assert "speed" in asked.asked
    assert Options().key != asked.key
    found = inputs_of(asked, None, ONE, H100)
    assert found.values["speed"] == "slow"
    assert "speed" not in found.defaults
    with pytest.raises(UsageError, match="no speed 'late'"):
        Options(speed="late").check_choices()
    with pytest.raises(UsageError, match="speed is a text"):
        Options(speed=3)
    seen: list[Options] = []

    @runs("run", without={})
    def verb(*, asked: FlagValues) -> None:
        """Runs."""
        seen.append(asked.options())

    own = typer.Typer()
    own.command()(verb)
    assert CliRunner().invoke(own, ["--speed", "slow", "--channels", "2"]).exit_code == 0
    assert (seen[0].value("speed"), seen[0].run.channels, seen[0].written) == ("slow", 2, ("channels", "speed"))
    assert "How fast." in CliRunner().invoke(own, ["--help"]).stdout
    # And what nobody has thought of in predictions of traces is refused there.
    assert flags_by_treatment("refused")["speed"] == "--speed"
    with pytest.raises(UsageError) as caught:
        check_asked(Options(speed=other_value("speed")))
    assert caught.value.where == "--speed"


def test_flat_names_and_parts_go_together() -> None:
    placed = Options(network=NetworkOptions(placement="ranks.txt"), fidelity="roofline")
    flow = placed.having(network="flow")
    assert (flow.network.model, flow.network.placement, flow.estimate.fidelity) == ("flow", "ranks.txt", "roofline")
    assert replace(placed, network="flow") == flow  # type: ignore[call-arg]
    assert Options(lowering="modelled").lowering.kernels == "modelled"
    with pytest.raises(UsageError, match="no option 'fidelty'") as caught:
        Options(fidelty="roofline")
    assert "fidelity" in str(caught.value.fix)


def test_one_of_many_questions_has_modelled_kernels_unless_others_are_asked_for() -> None:
    assert Options().of_many.lowering.kernels == "modelled"
    assert Options().of_many.asked == {"lowering"}
    for asked in ({"lowering": "auto"}, {"lowering": "compiled"}, {"fidelity": "compiled"}):
        options = Options().changed(asked, where="test")
        assert options.of_many is options


@pytest.mark.parametrize("name", ["fusion", "attention_library", "layers", "ragged", "context_attention"])
def test_kernels_that_no_stack_has_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="'zzz'") as caught:
        Options().having(**{name: "zzz"}).check_choices()
    assert (caught.value.where, Options().value(name) in str(caught.value.fix)) == (name, True)


def test_values_are_read_once_and_keep_their_words() -> None:
    asked = Options(plan="mbs=1, dp=2", overlap="prefetch , gathers=2", indices="zipf:1.50")
    assert asked.program.plan is not None
    assert (asked.program.plan.text, asked.program.plan.value) == ("mbs=1, dp=2", Plan(dp=2, mbs=1))
    assert asked.lowering.rewrites == Overlap(prefetch=True, gathers=2)
    assert asked.program.indices.value == 1.5
    told = inputs_of(asked, None, ONE, H100).values
    assert (told["overlap"], told["indices"]) == ("prefetch , gathers=2", "zipf:1.50")
    again = asked.having(on="h200", clocks="burst")
    assert again.program is asked.program
    assert again.lowering is asked.lowering
    assert Options(plan=Plan(dp=2), overlap=Overlap(prefetch=True)).lowering.overlap.text == "prefetch"


def test_show_takes_a_stack_and_refuses_what_is_about_kernels_without_them() -> None:
    path = str(Path("tests/fixtures/tanh.mlir"))
    for stack, fused in (("xla", "compiler"), ("megatron", "eager")):
        shown = CliRunner().invoke(app, ["show", path, "--kernels", "--stack", stack])
        assert shown.exit_code == 0, fused
    refused = CliRunner().invoke(app, ["show", path, "--overlap", "prefetch"])
    assert isinstance(refused.exception, UsageError)
    assert refused.exception.where == "--overlap"
