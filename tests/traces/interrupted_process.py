"""Runs the `meshcast` command, which gets a signal when a function of ours is called.

A line of standard input is a run, as JSON: the files that its standard output and error go to, the moment, the signal, and the
command's arguments. Each is a process of its own, forked when everything was imported and nothing has run, and ends as any other;
its exit code is a line of standard output. A moment is `module:function`, or `module:function~` for inside a destructor that runs
there, where what Python raises is lost.
"""

import importlib
import json
import os
import signal
import sys
from typing import Any

from meshcast.cli import main

for loaded in (
    "meshcast.cli.app", "meshcast.programs.mlir", "meshcast.jobs.program.run", "meshcast.estimate.gpu.estimator",
    "meshcast.traces.formats", "meshcast.traces.writers", "meshcast.traces.kineto",
):  # fmt: skip
    importlib.import_module(loaded)
for line in sys.stdin:
    out, err, moment, name, *sys.argv[1:] = json.loads(line)
    child = os.fork()
    if child == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
for place, number in ((os.devnull, 0), (out, 1), (err, 2)):
    os.dup2(os.open(place, os.O_RDWR | os.O_CREAT), number)
number = getattr(signal, name)
place, _, called = moment.removesuffix("~").partition(":")
owner: Any = importlib.import_module(place)
*inside, last = called.split(".")
for each in inside:
    owner = getattr(owner, each)
original = getattr(owner, last)


class Destroyed:
    """Something that a signal comes in the end of."""

    def __del__(self) -> None:
        os.kill(os.getpid(), number)
        sum(range(1000))  # handlers run between steps of Python's


def interrupted(*arguments: Any, **named: Any) -> Any:
    """The function, with a signal before."""
    if moment.endswith("~"):
        Destroyed()
    else:
        os.kill(os.getpid(), number)
    return original(*arguments, **named)


setattr(owner, last, interrupted)
main()
