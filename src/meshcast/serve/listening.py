"""The server's process: it listens on loopback unless told otherwise, says where, and ends with all that it has started."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from meshcast.base import UnsupportedError, UsageError, how_to_install

EXTRA = "serve"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """How the page is served.

    Attributes:
        host: The address to listen at.
        port: The port; 0 takes a free one.
        runs: The folder with run folders, where searches leave theirs.
        workers: Processes that predict.
        allowed_hosts: Names that browsers may call it by besides those of loopback and its own address.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    runs: Path = Path()
    workers: int = 2
    allowed_hosts: tuple[str, ...] = ()


def serve_page(options: ServeOptions) -> None:
    """Serves the page until a signal ends it.

    Raises:
        UnsupportedError: FastAPI or uvicorn are not installed.
        UsageError: Nobody can listen there, or the runs folder is none.
    """
    there = next(each for each in (options.runs, *options.runs.absolute().parents) if each.exists())
    if not there.is_dir():
        raise UsageError(
            f"{there} is no folder", where="--runs", fix="name a folder; searches make it where it is missing"
        )
    try:
        import uvicorn

        from meshcast.serve.app import create_app
    except ImportError as error:
        raise UnsupportedError(
            f"the page needs {error.name}, which is not installed", where="serve", fix=how_to_install(EXTRA)
        ) from None
    listening = _socket(options)
    host, port = listening.getsockname()[:2]
    app = create_app(runs=options.runs, workers=options.workers, hosts=_hosts(options))
    address = ipaddress.ip_address(host)  # "all addresses" is no name that browsers may call it by
    shown = "localhost" if address.is_loopback or address.is_unspecified else host
    print(f"meshcast: the page is at http://{shown}:{port}/ (Ctrl-C ends it)", file=sys.stderr, flush=True)
    if not address.is_loopback:
        print("meshcast: others can reach it: it asks nobody who they are", file=sys.stderr, flush=True)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_keep_alive=15, timeout_graceful_shutdown=3,
        server_header=False, limit_concurrency=256, h11_max_incomplete_event_size=64 * 2**10,
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=[listening])


def _hosts(options: ServeOptions) -> tuple[str, ...]:
    from meshcast.serve.guard import LOOPBACK

    own = () if options.host in ("", "0.0.0.0", "::") else (options.host,)
    return (*LOOPBACK, *own, *options.allowed_hosts)


def _socket(options: ServeOptions) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(128)  # before the address is told: whoever opens it at once waits, and is not refused
    except (OSError, OverflowError) as error:
        raise _not_listening(options, error) from None
    return made


def _not_listening(options: ServeOptions, error: OSError | OverflowError) -> UsageError:
    """Why nobody can listen there, in words of ours."""
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, socket.gaierror):
        return UsageError(
            f"no address is known as {options.host!r}", where="--host", fix="127.0.0.1 is this machine alone"
        )
    where, why, fix = {
        errno.EADDRINUSE: ("--port", "another program listens there already", "another --port; 0 takes a free one"),
        errno.EACCES: ("--port", "this user may not use the port", "a --port from 1024 on; 0 takes a free one"),
        errno.EADDRNOTAVAIL: (
            "--host",
            "that is no address of this machine",
            "127.0.0.1, or an address of this machine",
        ),
    }.get(number or 0, ("--port", os.strerror(number) if number else "no such port", "another --port or --host"))
    return UsageError(f"nobody can listen at {options.host}:{options.port}: {why}", where=where, fix=fix)
