"""Ends a process whose parent has gone: killed outright, a parent takes nothing back and tells nobody.

The parent holds the other end of the pipe that is the child's standard input. However it ends, the system closes that end, and
`poll` says so (POLLHUP). Linux could send a signal instead (PR_SET_PDEATHSIG), but that follows the thread that has started
the child, and children of ours are started by threads that end long before the process does.
"""

from __future__ import annotations

import os
import select
import signal
import stat
import threading

GRACE_S = 10.0  # for what a process keeps when it is told to end


def end_with_parent(*, told: signal.Signals | None = None) -> None:
    """From now on this process ends when whoever holds the other end of its standard input has gone.

    Where its standard input is no pipe, nobody holds one: then nothing is watched. Bytes that lie in the pipe stay there.

    Args:
        told: A signal that it gets first, to keep what it has; None: it ends at once.
    """
    try:
        watched = os.dup(0)
    except OSError:  # it was started without one
        return
    if not _is_pipe(watched):
        os.close(watched)
        return
    threading.Thread(target=_watch, args=(watched, told), name="parent-watch", daemon=True).start()


def _is_pipe(descriptor: int) -> bool:
    return stat.S_ISFIFO(os.fstat(descriptor).st_mode)


def _watch(descriptor: int, told: signal.Signals | None) -> None:
    gone = select.poll()
    gone.register(descriptor, 0)  # that the other end is closed is told always, and nothing else is asked for
    gone.poll()
    if told is not None:
        os.kill(os.getpid(), told)
        threading.Event().wait(GRACE_S)
    os._exit(128 + signal.SIGKILL)
