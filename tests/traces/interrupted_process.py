"""Runs the `meshcast` command, which gets a signal when a function of ours is called: moment, signal, then its arguments.

A moment is `module:function`, or `module:function~` for inside a destructor that runs there, where what Python raises is lost.
"""

import importlib
import os
import signal
import sys
from typing import Any

from meshcast.cli import main

moment, name, *sys.argv[1:] = sys.argv[1:]
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
