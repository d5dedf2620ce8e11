"""The `meshcast` command: one verb a module, errors turned into messages and exit codes."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import typer

from meshcast.cli import calibrate, collective, compare, devices, doctor, models, predict, show, systolic, validate
from meshcast.errors import MeshcastError, UsageError
from meshcast.version import VERSION

app = typer.Typer(
    name="meshcast",
    help="Predicts how a distributed ML program will run on GPUs and TPUs nobody has to own.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("predict")(predict.predict_command)
app.command("compare")(compare.compare_command)
app.command("show")(show.show_command)
app.command("collective")(collective.collective_command)
app.command("systolic")(systolic.systolic_command)
app.command("calibrate")(calibrate.calibrate_command)
app.command("devices")(devices.devices_command)
app.command("models")(models.models_command)
app.command("doctor")(doctor.doctor_command)
app.add_typer(validate.app, name="validate")


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version and leave.")) -> None:
    if version:
        typer.echo(f"meshcast {VERSION}")
        raise typer.Exit


def run() -> None:
    """Runs the command; a user's mistake is a message and an exit code, never a traceback."""
    as_json = "--json" in sys.argv
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except MeshcastError as error:
        report(error, as_json=as_json)
        sys.exit(error.exit_code)
    except typer.Abort:
        sys.exit(130)
    except KeyboardInterrupt:
        print("meshcast: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has left: not an error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if not hasattr(error, "format_message"):  # not the command line parser's: a bug of ours, with its traceback
            raise
        if as_json:
            emit_json(UsageError(error.format_message(), where="command line", fix="see --help").to_json())
        error.show()  # type: ignore[attr-defined]
        sys.exit(2)


def report(error: MeshcastError, *, as_json: bool) -> None:
    """The error for people on stderr, and with `--json` as an object on stdout."""
    if as_json:
        emit_json(error.to_json())
    print(f"meshcast: {error.code}: {error}", file=sys.stderr)


def emit_json(value: dict[str, Any]) -> None:
    """One JSON object on one line."""
    sys.stdout.write(json.dumps(value, allow_nan=False, separators=(", ", ": ")) + "\n")
    sys.stdout.flush()
