"""What every request and every answer keeps to: a known host, headers that browsers obey.

A page of another site may point its own name at 127.0.0.1 (DNS rebinding) and then read what is
served there as if it were its own. It cannot change the header Host that its name stands in, so
only names of this server are answered. Nothing is shared with other origins: there is no CORS.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Collection

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("localhost", "127.0.0.1", "::1")
EVERYWHERE = ("0.0.0.0", "::", "")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address.

    >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Hosts:
    """The names that a server at ``host`` goes by; on all interfaces also any address as such.

    >>> known = Hosts("127.0.0.1")
    >>> "localhost:8000" in known, "[::1]:8000" in known, "evil.example" in known
    (True, True, False)
    >>> "192.168.0.7:8000" in Hosts("0.0.0.0"), "evil.example" in Hosts("0.0.0.0")
    (True, False)
    """

    def __init__(self, host: str) -> None:
        self._anywhere = host in EVERYWHERE
        self._names = {*LOOPBACK, host.lower()}
        if self._anywhere:
            self._names.add(socket.gethostname().lower())

    def __contains__(self, header: str) -> bool:
        name, bracket, rest = header.lower().rpartition("]")
        name = name.removeprefix("[") if bracket else rest.partition(":")[0]
        return name in self._names or (self._anywhere and _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """Around the application: refuses other hosts with ``refusal``, and adds the headers."""

    def __init__(self, app: ASGIApp, hosts: Hosts, refusal: Callable[[str, int], Response]) -> None:
        self._app, self._hosts, self._refusal = app, hosts, refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        found = [value for name, value in scope["headers"] if name == b"host"]
        app = self._app
        if len(found) != 1 or not _in(found[0], self._hosts):
            app = self._refusal("the request is for another host than this server's.", 400)
        await app(scope, receive, send_guarded)


def _in(header: bytes, hosts: Collection[str] | Hosts) -> bool:
    return header.decode("latin-1") in hosts
