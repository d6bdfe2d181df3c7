"""FastAPI's routes: the page, its files and the JSON that it is made of; uvicorn that runs them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import ipaddress
import re
import signal
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from types import FrameType
from typing import Annotated, Any

import jinja2
import msgspec
import pydantic
import uvicorn
from fastapi import Body, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from hoplite.errors import HopliteError, is_shortage, option_name
from hoplite.explain.rendering import percent
from hoplite.machine import VERSION
from hoplite.serve.answers import MAX_BODY, Answers, Failure, UnknownNode

PAGE = files("hoplite.serve").joinpath("page")
FILES = {"page.js": "text/javascript", "page.css": "text/css", "icon.svg": "image/svg+xml"}
THREADS = 2  # few, as they share one interpreter; kernels release it
SECONDS = 20.0  # time limit of a request with its body
IDLE_SECONDS = 25.0  # until a connection without a new request is closed; more than SECONDS
MAX_CONNECTIONS = 512
MAX_OF_CLIENT = 64  # connections of one address
QUERIES = ("model", "examples", "nodes", "features", "node", "explanation", "flips")
NAMES = {"node": "id", "class_": "class"}  # names of arguments
QUERY = pydantic.ConfigDict(
    extra="forbid", alias_generator=lambda argument: NAMES.get(argument, argument)
)
SCHEMAS = "#/components/schemas/{name}"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def make_app(answers: Answers, *, host: str = "127.0.0.1", seconds: float = SECONDS) -> ASGIApp:
    """The application that serves ``answers`` on ``host``."""
    app = FastAPI(
        title="hoplite serve",
        version=VERSION,
        docs_url=None,  # FastAPI's pages load scripts from other hosts
        redoc_url=None,
        responses={"4XX": {"model": Failure}, "5XX": {"model": Failure}},
        exception_handlers={
            HTTPException: _http_failure,
            RequestValidationError: _invalid,
            HopliteError: _refused,
            Exception: _broken,
        },
    )
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="hoplite-serve")
    template = PAGE.joinpath("index.html").read_text(encoding="utf-8")
    page = jinja2.Environment(autoescape=True).from_string(template)
    html = page.render(served=answers.model(), percent=percent)

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return HTMLResponse(html)

    @app.get("/files/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        if name not in FILES:
            raise HTTPException(404)
        return Response(PAGE.joinpath(name).read_bytes(), media_type=FILES[name])

    def serve(name: str, verb: str = "GET", source: Any = Query) -> type:
        """Answer ``/api/name`` with the method of that name; return the type of the answer."""
        method = getattr(Answers, name)
        signature = inspect.signature(method, eval_str=True)
        _, *arguments = signature.parameters.values()
        fields: Any = {
            argument.name: (
                argument.annotation,
                ... if argument.default is argument.empty else argument.default,
            )
            for argument in arguments
        }
        query = pydantic.create_model(f"{name} query", __config__=QUERY, **fields)
        type_ = signature.return_annotation

        async def endpoint(values: Any) -> Response:
            def encoded() -> bytes:
                answer = getattr(answers, name)(**dict(values))
                return msgspec.json.encode(_with_text_ids(msgspec.to_builtins(answer)))

            body = await asyncio.get_running_loop().run_in_executor(pool, encoded)
            return Response(body, media_type="application/json")

        endpoint.__annotations__ = {"values": Annotated[query, source()]}
        schema = {"application/json": {"schema": {"$ref": SCHEMAS.format(name=type_.__name__)}}}
        responses: Any = {200: {"description": type_.__doc__, "content": schema}}
        route = {"methods": [verb], "name": name, "description": inspect.getdoc(method)}
        app.add_api_route(f"/api/{name}", endpoint, responses=responses, **route)
        return type_

    types = [serve(name) for name in QUERIES] + [serve("change", "POST", Body)]
    _, components = msgspec.json.schema_components(types, ref_template=SCHEMAS)
    app.openapi()["components"]["schemas"] |= components  # FastAPI keeps what it returns
    return Guard(app, host, seconds)


class Guard:
    """Refuses other hosts and large bodies, ends what takes too long, adds security headers.

    A page of another site may point its own name at 127.0.0.1 (DNS rebinding) and then read what
    is served there. It cannot change the header Host, so only names of this server are answered.
    Nothing is shared with other origins: there is no CORS.
    """

    def __init__(self, app: ASGIApp, host: str, seconds: float) -> None:
        self._app, self._host, self._seconds = app, host, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, app, started = Headers(scope=scope), self._app, False

        async def send_guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        if [is_own_host(name, self._host) for name in headers.getlist("host")] != [True]:
            app = _failure("the request is for a different host.", 400)
        elif "transfer-encoding" in headers or int(headers.get("content-length", 0)) > MAX_BODY:
            app = _failure(f"the body must have a length of at most {MAX_BODY:,} bytes.", 413)
        try:
            async with asyncio.timeout(self._seconds):
                await app(scope, receive, send_guarded)
        except TimeoutError:
            if not started:
                slow = _failure(f"the request took more than {self._seconds:g} seconds.", 503)
                await slow(scope, receive, send_guarded)


def is_own_host(header: str, host: str) -> bool:
    """Whether a header Host names this server, which listens at ``host``.

    Any address does: only names can be pointed elsewhere.

    >>> is_own_host("LOCALHOST:8000", "127.0.0.1"), is_own_host("[::1]:8000", "127.0.0.1")
    (True, True)
    >>> is_own_host("evil.example", "127.0.0.1"), is_own_host("[localhost]evil.com", "127.0.0.1")
    (False, False)
    """
    match = re.fullmatch(r"(?:\[([0-9a-f:.]+)\]|([^][:@/\s]+))(?::[0-9]*)?", header.lower())
    if match is None:
        return False
    address, name = match.groups()
    names = ("localhost", host.lower(), socket.gethostname().lower())
    return name in names or _address(address or name) is not None


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address.

    >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _with_text_ids(value: Any) -> Any:
    """Ids as texts: a browser would round whole numbers above 2^53 to those of other nodes."""
    if isinstance(value, dict):
        return {
            name: str(part) if name == "id" else _with_text_ids(part)
            for name, part in value.items()
        }
    return [_with_text_ids(part) for part in value] if isinstance(value, list | tuple) else value


def _failure(sentence: str, status: int) -> Response:
    return JSONResponse({"error": sentence}, status)


async def _http_failure(request: Request, error: Any) -> Response:
    sentences = {
        400: "Invalid JSON in the body.",
        404: "Not found; /openapi.json lists all addresses.",
        405: f"Method not allowed: {request.method}.",
    }
    return _failure(sentences.get(error.status_code, str(error.detail)), error.status_code)


async def _invalid(request: Request, error: Any) -> Response:
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return _failure("Invalid JSON in the body.", 400)
    place = ".".join(map(str, first["loc"][1:])) or "the body"
    return _failure(f"{place}: {first['msg']}.", 422)


async def _refused(request: Request, error: Any) -> Response:
    return _failure(str(error), 404 if isinstance(error, UnknownNode) else 422)


async def _broken(request: Request, error: Any) -> Response:
    if is_shortage(error):
        return _failure("there is not enough memory at the moment.", 503)
    return _failure("Internal server error; see the server's log.", 500)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at ``host``; port 0 is any free one. HopliteError if that fails."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends at once (TCP_NODELAY) only where the protocol is named; otherwise a body waits
    # up to 40 ms for the other side to confirm the headers
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(512)
    except (OSError, OverflowError) as error:
        bound.close()
        why = getattr(error, "strerror", None) or error
        raise HopliteError(
            f"cannot listen at {host}, port {port}: {why}; choose another {option_name('host')} "
            f"or {option_name('port')}."
        ) from None
    return bound


def address(host: str, bound: socket.socket) -> str:
    """The address of the page for a browser.

    >>> with listen("127.0.0.1", 0) as bound:
    ...     address("127.0.0.1", bound).startswith("http://127.0.0.1:")
    True
    """
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    name = f"[{name}]" if ":" in name else name
    return f"http://{name}:{bound.getsockname()[1]}/"


class _Connection(H11Protocol):
    """A connection that is closed after ``IDLE_SECONDS`` without a new request.

    That ends silent clients, headers that never end, and clients that do not read their answer. If
    an address has too many connections, the oldest of those that wait for a request is closed.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore
        super().connection_made(transport)
        self._started = self.loop.time()
        self._check_idle(self)
        address = self.client and self.client[0]
        connections: set[Any] = self.connections
        same = [
            other
            for other in connections
            if other.client and other.client[0] == address and not other.transport.is_closing()
        ]
        waiting = [c for c in same if c.cycle is None or c.cycle.response_complete]
        if len(same) > MAX_OF_CLIENT:
            min(waiting, key=lambda connection: connection._started).transport.abort()

    def _check_idle(self, before: Any) -> None:
        """``before`` is the request at the last check; uvicorn has a new ``cycle`` for each."""
        if self.cycle is before:
            self.transport.abort()
        elif not self.transport.is_closing():
            self.loop.call_later(IDLE_SECONDS, self._check_idle, self.cycle)


class _Server(uvicorn.Server):
    """Calls ``ready`` when it answers; a signal ends it without being raised again."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


def run(app: Any, bound: socket.socket, ready: Callable[[], None]) -> None:
    """Serve ``app`` until SIGINT or SIGTERM; ``ready`` is called once it answers."""
    config = uvicorn.Config(
        app,
        http=_Connection,
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=20,
        timeout_graceful_shutdown=3,
    )
    gc.collect()
    gc.freeze()  # the model stays; looking for garbage in it would stop all requests for 0.1 s
    with contextlib.closing(bound):
        _Server(config, ready).run(sockets=[bound])
