"""The `meshcast` command: one verb a module, errors turned into messages and exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from meshcast.base import VERSION, InterruptedCommand, MeshcastError, UsageError, names_taken, not_written
from meshcast.cli import (
    calibrate,
    collective,
    compare,
    devices,
    doctor,
    models,
    predict,
    show,
    stacks,
    systolic,
    trace,
    validate,
)
from meshcast.cli.patience import INTERRUPTED


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

    def invoke(self, ctx: Any) -> Any:
        """Runs a verb."""
        with _reader_may_leave():
            return super().invoke(ctx)


class _Verb(TyperCommand):
    """A verb. The parser keeps the last of several `--on`: a verb that predicts for one of them refuses the others."""

    def make_parser(self, ctx: Any) -> Any:
        """The parser, which says what was written twice."""
        parser = super().make_parser(ctx)
        read = parser.parse_args

        def once(args: list[str]) -> tuple[dict[str, Any], list[str], list[Any]]:
            values, rest, order = read(args)
            written = [each for each in order if "--on" in each.opts]
            if len(written) > 1 and not written[0].multiple:
                raise UsageError(
                    f"it is given {len(written)} times, and {self.name} takes one",
                    where="--on",
                    fix="give one, or use meshcast compare",
                )
            return values, rest, order

        parser.parse_args = once  # type: ignore[method-assign]
        return parser


app = typer.Typer(
    name="meshcast",
    cls=_Verbs,
    help="Predicts how a distributed ML program will run on GPUs and TPUs nobody has to own.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("predict", cls=_Verb)(predict.predict_command)
app.command("compare", cls=_Verb)(compare.compare_command)
app.command("show", cls=_Verb)(show.show_command)
app.command("trace", cls=_Verb)(trace.trace_command)
app.command("collective", cls=_Verb)(collective.collective_command)
app.command("systolic", cls=_Verb)(systolic.systolic_command)
app.command("calibrate", cls=_Verb)(calibrate.calibrate_command)
app.command("devices", cls=_Verb)(devices.devices_command)
app.command("models", cls=_Verb)(models.models_command)
app.command("stacks", cls=_Verb)(stacks.stacks_command)
app.command("doctor", cls=_Verb)(doctor.doctor_command)
app.add_typer(validate.app, name="validate")


@app.callback(invoke_without_command=True)
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
            return app(standalone_mode=False) or 0
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
        if as_json:
            emit_json(UsageError(error.format_message(), where="command line", fix="see --help").to_json())
        error.show()  # type: ignore[attr-defined]
        return 2


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
