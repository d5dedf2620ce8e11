"""Standard streams that are closed or full, and signals that come before anything is imported: outcomes stay what they are."""

from __future__ import annotations

import subprocess
import sys

import pytest

_COMMAND = f"{sys.executable} -m meshcast"
_SIGNALLED = """
import os, signal, sys

class Hurry:
    def find_spec(self, name, path=None, target=None):
        if name == "meshcast.base.interruption":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Hurry())
sys.argv = ["meshcast", "--version"]
from meshcast.cli import main
main()
"""


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("--version >&-", 0),
        ("--help <&- >&- 2>&-", 0),
        ("stacks no-such-stack 2>&- >&-", 4),
        ("stacks no-such-stack 2>/dev/full", 4),
        ("--no-such-option 2>/dev/full", 2),
    ],
)
def test_a_closed_or_full_stream_leaves_the_exit_code_alone(line: str, code: int) -> None:
    done = subprocess.run(["bash", "-c", f"{_COMMAND} {line}"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_a_full_standard_output_is_an_error_of_output() -> None:
    done = subprocess.run(["bash", "-c", f"{_COMMAND} devices >/dev/full"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("meshcast: unwritable-output: standard output: cannot be written: No space left")


def test_without_standard_error_the_output_is_what_it_was() -> None:
    done = subprocess.run(
        ["bash", "-c", f"{_COMMAND} --version 2>&- | cat"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("meshcast ")
    assert done.stdout.count("\n") == 1


def test_an_interrupt_before_signals_are_listened_to_is_one_line() -> None:
    done = subprocess.run([sys.executable, "-c", _SIGNALLED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "meshcast: interrupted\n")


def test_answers_do_not_depend_on_the_number_of_cores() -> None:
    """BLAS splits its sums over as many threads as there are cores, which changes their last bits."""
    code = "import atexit, os, sys; sys.argv = ['meshcast', '--version']; os.environ.pop('OPENBLAS_NUM_THREADS', None);"
    code += "atexit.register(lambda: print(os.environ['OPENBLAS_NUM_THREADS'])); from meshcast.cli import main; main()"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines()[-1] == "1"
