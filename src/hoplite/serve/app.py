"""The routes: a page, its files, and the JSON that it is made of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from typing import Any, TypeVar

import jinja2
import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from hoplite.errors import HopliteError, is_shortage
from hoplite.explain.text import percent
from hoplite.serve.answers import Answers, UnknownNode
from hoplite.serve.guard import Guard, Hosts
from hoplite.serve.openapi import openapi
from hoplite.serve.schema import (
    MOST_BODY,
    ChangeRequest,
    ExplanationQuery,
    Failure,
    FeatureSearch,
    NodeQuery,
    Search,
)
from hoplite.serve.work import Overloaded, Work

PAGE = files("hoplite.serve").joinpath("page")
FILES = {"page.js": "text/javascript", "page.css": "text/css", "icon.svg": "image/svg+xml"}
BODY_SECONDS = 10.0  # in which a body must come

T = TypeVar("T")


class Refused(Exception):
    """A request that cannot be answered: the sentence, and the HTTP status."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


def make_app(answers: Answers, *, host: str = "127.0.0.1", work: Work | None = None) -> ASGIApp:
    """The application that serves ``answers`` on ``host``."""
    work = work or Work()
    page = _page(answers)
    schema = msgspec.json.encode(openapi())

    async def index(request: Request) -> Response:
        return HTMLResponse(page)

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in FILES:
            raise HTTPException(404)
        return Response(PAGE.joinpath(name).read_bytes(), media_type=FILES[name])

    async def described(request: Request) -> Response:
        return _json(schema)

    async def model(request: Request) -> Response:
        return _json(msgspec.json.encode(answers.model()))

    async def examples(request: Request) -> Response:
        return _json(msgspec.json.encode(answers.examples()))

    async def change(request: Request) -> Response:
        asked = _decoded(await _body(request), ChangeRequest)
        return await answered(partial(answers.change, asked.id, asked.features))

    def query(kind: type[T], answer: Callable[[T], Any]) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            return await answered(partial(answer, _queried(request, kind)))

        return endpoint

    async def answered(function: Callable[[], Any]) -> Response:
        return _json(await work.run(lambda: msgspec.json.encode(function())))

    def get(path: str, endpoint: Callable[[Request], Any]) -> Route:
        return Route(path, endpoint, methods=["GET"])

    app = Starlette(
        routes=[
            get("/", index),
            get("/files/{name}", file),
            get("/openapi.json", described),
            get("/api/model", model),
            get("/api/examples", examples),
            get("/api/nodes", query(Search, lambda q: answers.nodes(q.prefix, q.limit))),
            get(
                "/api/features",
                query(FeatureSearch, lambda q: answers.features(q.prefix, q.limit, q.id)),
            ),
            get("/api/node", query(NodeQuery, lambda q: answers.node(q.id))),
            get(
                "/api/explanation",
                query(
                    ExplanationQuery,
                    lambda q: answers.explanation(q.id, q.class_, q.against, q.top),
                ),
            ),
            get("/api/flips", query(NodeQuery, lambda q: answers.flips(q.id))),
            Route("/api/change", change, methods=["POST"]),
        ],
        exception_handlers={
            HTTPException: _http_failed,
            Refused: _failed,
            HopliteError: _failed,
            Overloaded: _failed,
            ClientDisconnect: _failed,
            Exception: _broken,
        },
    )
    return Guard(app, Hosts(host), _failure)


def _json(body: bytes, status: int = 200) -> Response:
    return Response(body, status, media_type="application/json")


def _failure(sentence: str, status: int, hint: str | None = None) -> Response:
    answer = _json(msgspec.json.encode(Failure(sentence, hint)), status)
    if status == 503:
        answer.headers["Retry-After"] = "1"
    return answer


async def _http_failed(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    sentences = {404: "there is nothing at this address; /openapi.json lists what there is."}
    sentences[405] = f"Method not allowed: {request.method}."
    return _failure(sentences.get(status, "the request cannot be answered."), status)


async def _failed(request: Request, error: Exception) -> Response:
    if isinstance(error, Refused):
        return _failure(str(error), error.status)
    statuses = {UnknownNode: 404, Overloaded: 503, ClientDisconnect: 400}
    hint = "/api/nodes?prefix=... lists ids" if isinstance(error, UnknownNode) else None
    return _failure(str(error), statuses.get(type(error), 422), hint)


async def _broken(request: Request, error: Exception) -> Response:
    if is_shortage(error):
        return _failure("there is not enough memory for this now.", 503)
    return _failure("something is wrong in the server; its log has more.", 500)


def _queried(request: Request, kind: type[T]) -> T:
    pairs = request.query_params.multi_items()
    if len({name for name, _ in pairs}) < len(pairs):
        raise Refused("a parameter is given twice; give it once.", 400)
    try:
        return msgspec.convert(dict(pairs), kind, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"the parameters cannot be used: {error}.", 400) from None


async def _body(request: Request) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused("the body must be application/json.", 415)
    body = bytearray()

    async def read() -> None:
        async for part in request.stream():
            body.extend(part)
            if len(body) > MOST_BODY:
                raise Refused(f"the body has more than {MOST_BODY:,} bytes.", 413)

    try:
        await asyncio.wait_for(read(), BODY_SECONDS)
    except TimeoutError:
        raise Refused(f"the body did not come within {BODY_SECONDS:g} seconds.", 408) from None
    return bytes(body)


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise Refused(f"the body cannot be used: {error}.", 422) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refused("Invalid JSON in the body.", 400) from None


def _page(answers: Answers) -> str:
    source = PAGE.joinpath("index.html").read_text(encoding="utf-8")
    template = jinja2.Environment(autoescape=True).from_string(source)
    return template.render(served=answers.model(), percent=percent)
