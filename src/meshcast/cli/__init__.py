"""The command line: parse, call, print."""

from __future__ import annotations

import os
import signal
import sys

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Entry point of the `meshcast` command."""
    # Until somebody listens, signals wait: Python's own way with Ctrl-C is a traceback out of whatever is being imported.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    from meshcast.base import InterruptedCommand, listen
    from meshcast.cli.streams import open_streams

    open_streams()
    listen()  # first of all: what is imported below takes a while
    # XLA's start-up notes ("device count: ...") are not for our users; its warnings and errors are.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    # How BLAS splits a sum over threads decides about its last bits: answers are the same on any number of cores.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        from meshcast.programs import start_reader

        start_reader(sys.argv[1:])
        from meshcast.cli.app import run

        run()
    except InterruptedCommand as interrupted:  # before the command line was read, or behind its end
        interrupted.say(as_json=False)
        sys.exit(interrupted.exit_code)
