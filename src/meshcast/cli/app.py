"""The `meshcast` command: one verb a module, errors turned into messages and exit codes."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import signal
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from meshcast.base import VERSION, InterruptedCommand, MeshcastError, UsageError, names_taken, not_written
from meshcast.cli.completion import words_typed
from meshcast.cli.examples import closing
from meshcast.cli.patience import INTERRUPTED

if TYPE_CHECKING:
    app: typer.Typer


class _StoppedError(Exception):
    """An interrupt on its way through the command line parser, which would turn it into an exit code without a word."""

    def __init__(self, interrupt: KeyboardInterrupt) -> None:
        super().__init__(str(interrupt))
        self.interrupt = interrupt


@contextlib.contextmanager
def _reader_may_leave() -> Iterator[None]:
    """Ends with 0 where the reader of our output has left: click would end with 1, and so would rich inside a table."""
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt as interrupt:
        raise _StoppedError(interrupt) from None
    except BrokenPipeError:
        _stop_writing()
        raise typer.Exit(0) from None
    except SystemExit as ended:
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        _stop_writing()
        raise typer.Exit(0) from None


class _Verbs(TyperGroup):
    """The verbs. A reader that leaves early (`| head -1`) is no error."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Reads the command line; help is printed here."""
        with _reader_may_leave():
            return super().make_context(*args, **options)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The verb that a line names: one of two words where there is such a verb; `help VERB` is `VERB --help`."""
        if args == ["help"]:
            typer.echo(ctx.get_help())
            ctx.exit()
        if args[0] == "help":
            args = [*args[1:], "--help"]
        if len(args) > 1 and f"{args[0]} {args[1]}" in self.commands:
            args = [f"{args[0]} {args[1]}", *args[2:]]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Runs a verb."""
        with _reader_may_leave():
            return super().invoke(ctx)


# Flags that say what is asked for, with what to do where a line has several of one: the parser keeps the last without a word.
_ONCE = {
    "--on": "give one, or use meshcast compare",
    "--plan": "write all keys behind one --plan, with commas between them, or use meshcast compare",
    "--mesh": "write all axes behind one --mesh, with commas between them",
}


class _Verb(TyperCommand):
    """A verb. The parser keeps the last of several `--on`: a verb that predicts for one of them refuses the others."""

    def make_parser(self, ctx: Any) -> Any:
        """The parser, which says what was written twice."""
        parser = super().make_parser(ctx)
        read = parser.parse_args

        def once(args: list[str]) -> tuple[dict[str, Any], list[str], list[Any]]:
            values, rest, order = read(args)
            for name, fix in _ONCE.items():
                written = [each for each in order if name in each.opts]
                if len(written) > 1 and not written[0].multiple:
                    raise UsageError(
                        f"{name} is given {len(written)} times, and {self.name} takes one", where=name, fix=fix
                    )
            return values, rest, order

        parser.parse_args = once  # type: ignore[method-assign]
        return parser


# Every verb: `cli/VERB.py` has it, as `VERB_command` or as an app of its own; and what its help begins with, so that the list of
# verbs is told without any of them being loaded.
VERBS = {
    "predict": "Predicts step time, memory, communication and energy of each TARGET.",
    "compare": "Compares TARGETs over devices and fidelities: step times, ratios, and whether the order of designs survives.",
    "plan": "Finds the best parallel plans of MODEL: step time, MFU, memory, tokens/s, and what limits each.",
    "explore": "Searches a space of models, plans, hardware and sizes: the best points, the Pareto front, and what limits them.",
    "serve": "Serves a page on localhost: predictions, comparisons and searches by clicking.",
    "show": "Shows ops, FLOPs, bytes, loops and collectives of TARGET, as one device sees it.",
    "trace": "Writes how TARGET will run as a trace that other tools read.",
    "trace link": "Links execution traces and profiles of a real job's ranks into Chakra traces, which predict replays.",
    "trace share": "Writes traces of a job without names, shapes and clocks, or verifies that an original's are gone.",
    "generate": "Writes Chakra traces of a synthetic workload, like those of a model, for all ranks.",
    "report": "Writes how TARGET will run as one HTML file that needs no network: what takes the time, and what would help.",
    "collective": "Time, algbw and busbw (as nccl-tests defines them) of one collective, the algorithm chosen and why.",
    "systolic": "Cycles, stalls and utilisation of GEMM and convolution layers on an array of ROWS x COLS cells.",
    "calibrate": "Measures the device that JAX finds, or reads others' measurements of one, for fidelity profiled.",
    "devices": "Lists devices and clusters; with NAME, every number of one with its source.",
    "models": "Lists the reference models that can be targets, or the settings of one.",
    "stacks": "Lists the software stacks that --stack takes; with NAME, every choice of one with its source.",
    "doctor": "Checks what is installed and what is missing; exits with 4 when the core does not work.",
    "completion": "Prints the script that completes verbs, flags and names in a shell.",
    "tables": "Embedding tables of recommenders: what look-ups and updates take, and the fastest way to share them out.",
    "validate": "Predictions against measurements: how far off they are.",
}


def app_with(loaded: Collection[str]) -> typer.Typer:
    """The command line with some verbs to run; of the others it has the names and what their help begins with."""
    made = typer.Typer(
        name="meshcast",
        cls=_Verbs,
        help="Predicts how a distributed ML program will run on GPUs and TPUs nobody has to own.",
        epilog=closing(""),
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback(invoke_without_command=True)(_root)
    for verb, summary in VERBS.items():
        if verb not in loaded:
            made.command(verb, cls=_Verb, help=summary, short_help=summary)(_not_loaded)
            continue
        name = verb.replace(" ", "_")
        module = importlib.import_module(f"meshcast.cli.{name}")
        if hasattr(module, "app"):
            for each in module.app.registered_commands:
                each.epilog = closing(f"{verb} {each.name}")
                each.short_help = (each.callback.__doc__ or "").partition("\n\n")[0] if each.callback else None
            made.add_typer(module.app, name=verb, epilog=closing(verb), short_help=summary)
        else:
            made.command(verb, cls=_Verb, epilog=closing(verb), short_help=summary)(getattr(module, f"{name}_command"))
    return made


def __getattr__(name: str) -> Any:
    """`app`, with all verbs, where somebody asks for it: a command needs the one that its line names."""
    if name != "app":
        raise AttributeError(name)
    globals()[name] = found = app_with(VERBS)
    return found


def _not_loaded() -> None:
    raise AssertionError("a verb that runs is among the words of its command line")


def _root(version: bool = typer.Option(False, "--version", help="Print the version and leave.")) -> None:
    if version:
        typer.echo(f"meshcast {VERSION}")
        raise typer.Exit


def run() -> None:
    """Runs the command; a user's mistake is a message and an exit code, never a traceback."""
    code = 0
    try:
        code = _exit_code()
        sys.stdout.flush()  # not left to the interpreter's end, where a closed pipe can no longer be caught
    except BrokenPipeError:
        _stop_writing()
    except OSError as error:
        if error.filename is not None:
            raise
        code = _output_is_full(error)
    sys.exit(code)


def _exit_code() -> int:
    as_json = "--json" in sys.argv
    try:
        with names_taken():
            words = {*sys.argv, *words_typed()}
            asked = {verb for verb in VERBS if words.issuperset(verb.split())}
            return app_with(asked)(prog_name="meshcast", standalone_mode=False) or 0
    except MeshcastError as error:
        report(error, as_json=as_json)
        return error.exit_code
    except (_StoppedError, KeyboardInterrupt) as stopped:
        return _interrupted(stopped, as_json=as_json)
    except typer.Abort:
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is not None:  # of a file that we have opened: a bug of ours, with its traceback
            raise
        return _output_is_full(error)
    except Exception as error:
        if not hasattr(error, "format_message"):  # not the command line parser's: a bug of ours, with its traceback
            raise
        hint = _two_dashes(sys.argv[1:])
        if as_json:
            fix = hint or "see --help"
            emit_json(UsageError(error.format_message(), where="command line", fix=fix).to_json())
        error.show()  # type: ignore[attr-defined]
        if hint:
            print(hint[0].upper() + hint[1:], file=sys.stderr)
        return 2


def _two_dashes(words: Sequence[str]) -> str:
    """What may be meant by `-on`, which the parser reads as `-o n`; nothing where no word has the form."""
    found = next((word for word in words if re.fullmatch(r"-[a-z][a-z-]+(=.*)?", word)), None)
    return f"long options have two dashes: -{found}" if found else ""


def _interrupted(stopped: _StoppedError | KeyboardInterrupt, *, as_json: bool) -> int:
    """Says in one line what has ended the command, and with `--json` as an object; the exit code for it."""
    interrupt = stopped.interrupt if isinstance(stopped, _StoppedError) else stopped
    if not isinstance(interrupt, InterruptedCommand):
        interrupt = InterruptedCommand(signal.SIGINT)
    interrupt.say(as_json=as_json)
    return interrupt.exit_code


def _output_is_full(error: OSError) -> int:
    """Says why the standard output takes no more; the exit code for it. No object: there is no place to print it."""
    _stop_writing()
    said = not_written(error, Path("standard output"), fix="write it elsewhere")
    with contextlib.suppress(OSError):
        report(said, as_json=False)
    return said.exit_code


def _stop_writing() -> None:
    """What is still to be written goes nowhere, also what the interpreter flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def report(error: MeshcastError, *, as_json: bool) -> None:
    """The error for people on stderr, and with `--json` as an object on stdout."""
    if as_json:
        emit_json(error.to_json())
    print(f"meshcast: {error.code}: {error}", file=sys.stderr)


def emit_json(value: dict[str, Any]) -> None:
    """One JSON object on one line."""
    sys.stdout.write(json.dumps(value, allow_nan=False, separators=(", ", ": ")) + "\n")
    sys.stdout.flush()
