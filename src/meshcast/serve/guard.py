"""What every request goes through: who may ask, how much, in what time; and what browsers are told about every answer.

A page on localhost is reachable by every site that the same browser has open. Two checks keep those out: a request's `Host` must
be a name of this server (against DNS rebinding, where another site's name leads here), and where a request has an `Origin`, that
must be this server's as well (against requests across sites).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from meshcast.serve.limits import ServeLimits
from meshcast.serve.pool import error_body

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
UPLOADS = "/api/programs"
# Scripts and styles are files of ours; nothing is inline, and nothing comes from elsewhere.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# A report is one file with its scripts inside: it runs apart from the page, and reaches nothing.
REPORT_POLICY = (
    "sandbox allow-scripts allow-popups allow-popups-to-escape-sandbox allow-downloads; default-src 'none'; "
    "script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; worker-src blob:"
)
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """The outermost layer of the server.

    Args:
        app: What answers.
        hosts: Names that the server may be called by, without ports; others than loopback's are asked for by who starts it.
        limits: Of the server.
    """

    def __init__(self, app: App, *, hosts: tuple[str, ...], limits: ServeLimits) -> None:
        self._app = app
        self._hosts = hosts
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets a request through, or refuses it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        told = _with_headers(send)
        refused = self._refused(scope, headers)
        if refused is not None:
            await _answer(told, *refused)
            return
        limit = self._limits.upload_bytes if scope["path"] == UPLOADS else self._limits.body_bytes
        if scope["method"] in ("POST", "PUT"):
            body = await self._body(receive, headers, limit)
            if isinstance(body, tuple):
                await _answer(told, *body)
                return
            receive = _given(body, receive)
        await self._app(scope, receive, told)

    def _refused(self, scope: Scope, headers: dict[str, str]) -> tuple[int, bytes] | None:
        host = headers.get("host", "")
        if not self._is_ours(host):
            said = f"this server is not called {host[:100]!r}"
            return 421, error_body("host", said, fix="open it as localhost, or start it with --allow-host NAME")
        origin = headers.get("origin")
        if origin is not None and origin != f"{scope['scheme']}://{host}":
            return 403, error_body("origin", f"a page of {origin[:100]!r} may not ask this server")
        return None

    def _is_ours(self, host: str) -> bool:
        name = re.sub(r":\d{1,5}$", "", host).lower()
        return name in self._hosts

    async def _body(self, receive: Receive, headers: dict[str, str], limit: int) -> bytes | tuple[int, bytes]:
        """The whole body, or why it is not taken."""
        too_large = (
            413,
            error_body("too-large", f"more than {limit:,} bytes", fix="the command line takes larger files"),
        )
        declared = headers.get("content-length", "0")
        if not declared.isdecimal() or int(declared) > limit:
            return too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return 400, error_body("cut-off", "the request was cut off")
                    body += message.get("body", b"")
                    if len(body) > limit:
                        return too_large
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            return 408, error_body("too-slow", f"the request took longer than {self._limits.body_s:g} s to arrive")


def _given(body: bytes, receive: Receive) -> Receive:
    """A body that has been read, for whoever reads it next."""
    read = False

    async def again() -> MutableMapping[str, Any]:
        nonlocal read
        if read:
            return await receive()
        read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _with_headers(send: Send) -> Send:
    async def sent(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            names = {name.decode("latin-1").lower() for name, _ in message.get("headers", ())}
            usual = {**HEADERS, "content-security-policy": POLICY}
            more = {name: value for name, value in usual.items() if name not in names}
            message["headers"] = [*message.get("headers", ()), *((k.encode(), v.encode()) for k, v in more.items())]
        await send(message)

    return sent


async def _answer(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
