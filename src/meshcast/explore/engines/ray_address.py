"""The address of a Ray cluster, tried before Ray is asked to join it: Ray waits for minutes where nobody answers."""

from __future__ import annotations

import os
import socket
from urllib.parse import urlsplit

from meshcast.base import UsageError

FLAG, VARIABLE = "--address", "RAY_ADDRESS"
LOCAL, AUTO, CLIENT = "local", "auto", "ray://"
CLIENT_PORT = 10001  # of `ray://HOST`
ANSWERS_WITHIN_S = 5.0
FIX = "start it with ray start --head and name HOST:PORT, or leave --address out: a cluster of this machine is started"


def cluster_address(address: str | None) -> str:
    """What Ray is to be started with: `local` for a cluster of its own, or where one answers.

    Without an address none is joined that some earlier program has left its name of: only what the environment variable
    `RAY_ADDRESS` says, as jobs that Ray itself has started have it.

    Args:
        address: `HOST:PORT`, `ray://HOST[:PORT]`, `auto` or `local`; None: where nothing else is said, `local`.

    Raises:
        UsageError: It is no address, or nothing answers there.
    """
    said = os.environ.get(VARIABLE)
    where = FLAG if address else VARIABLE
    address = address or said or LOCAL
    if address == LOCAL:
        return address
    found = (said if said and said != AUTO else _running()) if address == AUTO else address
    if found is None:
        return address  # Ray looks for it in a way of its own
    _try(found, where, f"{found}, which {AUTO} stands for," if address == AUTO else found)
    # Of `auto` Ray also knows how its cluster wants to be asked: with the token that `ray start` has left.
    return AUTO if address == AUTO and found != said else found


def _running() -> str | None:
    """The cluster of this machine that Ray would join; None where this Ray does not say.

    Raises:
        UsageError: There is none.
    """
    try:
        from ray._private.services import get_ray_address_from_environment

        found = get_ray_address_from_environment(AUTO, None)
    except ConnectionError:
        raise UsageError("no Ray cluster runs on this machine", where=FLAG, fix=FIX) from None
    except (ImportError, TypeError):  # no name that Ray promises to keep
        return None
    return str(found)


def _try(address: str, where: str, said: str) -> None:
    """Refuses an address at which nothing listens."""
    host, port = _place(address, where)
    try:
        socket.create_connection((host, port), timeout=ANSWERS_WITHIN_S).close()
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(f"no Ray cluster at {said} answers: {why}", where=where, fix=FIX) from None


def _place(address: str, where: str) -> tuple[str, int]:
    client = address.startswith(CLIENT)
    try:
        parts = urlsplit(f"//{address.removeprefix(CLIENT)}")
        host, port = parts.hostname, parts.port or (CLIENT_PORT if client else None)
    except ValueError:
        host, port = None, None
    if not host or port is None or parts.path:
        raise UsageError(
            f"{address!r} is no address of a Ray cluster",
            where=where,
            fix="HOST:PORT such as 10.0.0.1:6379, ray://HOST:10001, or auto",
        )
    return host, port
