"""`meshcast stacks [NAME]`: the software stacks, or one with the source of every choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from meshcast.cli import arguments as flags
from meshcast.cli.completion import completed
from meshcast.options import stack_names

if TYPE_CHECKING:
    from meshcast.options import Stack, StackChoice

STACKS_SCHEMA = "meshcast.stacks/1"
ENTRY_SCHEMA = "meshcast.stack-entry/1"


def stacks_command(
    name: Annotated[
        str | None,
        typer.Argument(
            autocompletion=completed(stack_names),
            metavar="[NAME]",
            help="A stack, or a TOML file of one.",
        ),
    ] = None,
    json: flags.Json = False,
) -> None:
    """Lists the software stacks that --stack takes; with NAME, every choice of one with its source."""
    from meshcast.cli.app import emit_json
    from meshcast.options import load_stack

    if name is not None:
        stack = load_stack(name)
        if json:
            emit_json(_entry(stack))
        else:
            _print_entry(stack)
        return
    stacks = [load_stack(each) for each in stack_names()]
    if json:
        emit_json({"schema": STACKS_SCHEMA, "stacks": [_summary(stack) for stack in stacks]})
    else:
        _print_all(stacks)


def _summary(stack: Stack) -> dict[str, Any]:
    return {
        "name": stack.name, "title": stack.title, "fusion": stack.fusion, "attention": stack.attention,
        "attention_library": stack.attention_library, "layers": stack.layers, "ragged": stack.ragged,
        "scheduler": stack.scheduler, "overlap": stack.overlap, "launch_s": stack.host.launch, "graphs": stack.host.graphs,
    }  # fmt: skip


def _entry(stack: Stack) -> dict[str, Any]:
    """One stack, schema `meshcast.stack-entry/1`."""
    from meshcast.options import choices_of

    return {
        "schema": ENTRY_SCHEMA,
        **_summary(stack),
        "choices": {
            each.name: {
                "value": each.value,
                "source": each.source,
                "note": each.note or None,
                "used_by": each.used_by,
                "plan": _in_plan(stack, each) or None,
            }
            for each in choices_of(stack)
        },
        "sources": {
            key: {"title": source.title, "url": source.url, "note": source.note}
            for key, source in stack.sources.items()
        },
        "notes": stack.notes,
    }


def _print_all(stacks: list[Stack]) -> None:
    from meshcast.results import Section, columns, print_sections

    rows = [
        (stack.name, stack.fusion, stack.attention, stack.overlap or "none", stack.scheduler, stack.title)
        for stack in stacks
    ]
    heads = columns("stack", "fuses as", "attention", "overlap", "?scheduler", "?what it is")
    note = (
        "meshcast stacks NAME gives every choice with its source; without --stack models run as on XLA, attention=auto"
    )
    print_sections([Section(title="Stacks", columns=heads, rows=rows, note=note)])


def _print_entry(stack: Stack) -> None:
    from meshcast.options import UsedBy, choices_of
    from meshcast.results import Section, columns, print_sections

    heads = columns("choice", "value", "source", "note")
    rows: dict[str, list[tuple[str, ...]]] = {user: [] for user in get_args(UsedBy)}
    for each in choices_of(stack):
        rows[each.used_by].append((each.name, _in_plan(stack, each) or _text(each.value), each.source, each.note))
    cited = [
        (key, " ".join(filter(None, (source.title, source.url, source.note)))) for key, source in stack.sources.items()
    ]
    print_sections(
        [
            Section(title=f"{stack.name}: {stack.title}", rows=[("notes", stack.notes)] if stack.notes else []),
            Section(title=f"Every prediction with --stack {stack.name} takes", columns=heads, rows=rows["predictions"]),
            Section(
                title="Its recipes choose, and a plan has to say",
                columns=columns("choice", "in --plan", "source", "note"),
                rows=rows["plan"],
                note="a plan without one of these words keeps the plan's own default, and a warning names what differs",
            ),
            Section(title="Read where a published run does not say (validate runs)", columns=heads, rows=rows["runs"]),
            Section(title="Told, not modelled", columns=heads, rows=rows["nothing"]),
            Section(title="Sources", rows=cited),
        ]
    )


def _in_plan(stack: Stack, choice: StackChoice) -> str:
    """A choice as a plan says it, `zero=1`; empty where it is not for plans."""
    from meshcast.zoo import text_of

    return f"{choice.plan_key}={text_of(stack.recipe[choice.plan_key])}" if choice.plan_key else ""


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) or "none"
