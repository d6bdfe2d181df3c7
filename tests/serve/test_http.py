"""The server as a client meets it: a real process, a real socket, many requests at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import threading

import httpx
import msgspec
import numpy as np
import pytest
import uvicorn
from tests.commands import hoplite
from tests.serve.conftest import IDS, SCRIPT, apart, serving
from tests.serve.test_answers import load, small

from hoplite.serve import app
from hoplite.serve.answers import Answers, NodeAnswer
from hoplite.serve.app import HEADERS, make_app

CHANGE = {"age": 55.5, "town": "Bonn"}


@pytest.fixture(scope="module")
def client(address):
    with httpx.Client(base_url=address, timeout=600) as made:
        yield made


def test_fifty_requests_at_once_are_all_answered_as_the_library_does(address, model, tables):
    graph = load(tables, model)
    wanted = model.predict_proba(graph)
    names = list(graph.node_ids[:17])

    async def ask_all():
        limits = httpx.Limits(max_connections=50)
        async with httpx.AsyncClient(base_url=address, timeout=600, limits=limits) as client:
            asked = []
            for name in names:
                asked.append(client.get("/api/node", params={"id": name}))
                asked.append(client.get("/api/explanation", params={"id": name}))
                asked.append(client.post("/api/change", json={"id": name, "features": CHANGE}))
            return await asyncio.gather(*asked)

    answers = apart(lambda: asyncio.run(ask_all()))
    assert [answer.status_code for answer in answers] == [200] * 51
    for place, answer in enumerate(answers[::3]):
        node = msgspec.json.decode(answer.content, type=NodeAnswer)
        shares = [output.probability for output in node.prediction.outputs]
        np.testing.assert_allclose(shares, wanted[place], rtol=1e-5)


def test_ids_are_any_text(client):
    for name in IDS:
        answer = client.get("/api/node", params={"id": name})
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["id"] == name
        first = client.get("/api/nodes", params={"prefix": name, "limit": 1}).json()["nodes"]
        assert [one["id"] for one in first] == [name]
    found = client.get("/api/nodes", params={"prefix": "<SCR"}).json()["nodes"]
    assert [one["id"] for one in found] == [SCRIPT]


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/api/node", 422, "id: Field required"),
        ("/api/node?id=nobody", 404, "'nobody' is not a node id"),
        ("/api/node?id=7&more=1", 422, "more: "),
        ("/api/node?id=" + "x" * 1001, 422, "at most 1000 characters"),
        ("/api/nodes?limit=0", 422, "limit: "),
        ("/api/nodes?limit=101", 422, "limit: "),
        ("/api/nodes?limit=many", 422, "limit: "),
        ("/api/explanation?id=7&top=51", 422, "top: "),
        ("/api/explanation?id=7&class=bird", 422, "class_ is 'bird'"),
        ("/api/explanation?id=7&class=dog&against=dog", 422, "the explained class"),
        ("/api/change", 405, "Method not allowed"),
        ("/files/answers.py", 404, "Not found"),
        ("/files/..%2Fapp.py", 404, "Not found"),
        ("/docs", 404, "Not found"),
        ("/redoc", 404, "Not found"),
        ("/api/" + "x" * 300, 404, "Not found"),
    ],
)
def test_wrong_queries(client, path, status, sentence):
    answer = client.get(path)
    assert (answer.status_code, list(answer.json())) == (status, ["error"])
    assert sentence in answer.json()["error"]
    for name in HEADERS:
        assert name in answer.headers


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ("", 422, "Field required"),
        ("{", 400, "Invalid JSON"),
        (b'{"id": "\xff", "features": {}}', 400, "Invalid JSON"),
        ("[" * 60_000, 400, "Invalid JSON"),
        ('{"id": "7", "features": {"age": NaN}}', 422, "features.age"),
        ('{"id": "7", "features": {"age": 1e999}}', 422, "features.age"),
        ('{"id": 7, "features": {}}', 422, "id: Input should be a valid string"),
        ('{"id": "7"}', 422, "features: Field required"),
        ('{"id": "7", "features": {}, "more": 1}', 422, "more: "),
        ('{"id": "7", "features": {"age": [1]}}', 422, "features.age"),
        ('{"id": "7", "features": {"age": "old"}}', 422, "age is 'old'; it must be a number."),
        ('{"id": "7", "features": {"age": true}}', 422, "age is True; it must be a number."),
        ('{"id": "7", "features": {"<i>nothing": 1}}', 422, "'<i>nothing' is not a feature"),
        ('{"id": "nobody", "features": {}}', 404, "'nobody'"),
        (json.dumps({"id": "7", "features": {f"f{i}": 1 for i in range(101)}}), 422, "at most 100"),
        (json.dumps({"id": "7", "features": {"age": "x" * 70_000}}), 413, "65,536 bytes"),
        (iter([b'{"id": "7", ', b'"features": {}}']), 413, "65,536 bytes"),  # of no known length
    ],
)
def test_wrong_bodies(client, body, status, sentence):
    answer = client.post("/api/change", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, list(answer.json())) == (status, ["error"])
    assert sentence in answer.json()["error"]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("LOCALHOST:99", 200), ("127.0.0.1", 200), ("[::1]:8000", 200),
        ("evil.example", 400), ("evil.example:80", 400), ("localhost.evil.example", 400),
        ("127.0.0.1.evil.example", 400), ("192.168.0.1", 200), ("[", 400), ("", 400),
        ("[localhost]evil.com", 400), ("localhost:evil.com", 400), ("127.0.0.1:80@evil.com", 400),
        ("[localhost]", 400), ("evil.com[::1]", 400), ("[::1]evil.com:80", 400), ("::1", 400),
    ],
)  # fmt: skip
def test_only_its_own_hosts_are_answered(client, host, status):
    for path in ("/", "/api/model", "/nothing"):
        answer = client.get(path, headers={"Host": host})
        assert answer.status_code in (status, 404 if status == 200 else status)


def test_no_other_origin_reads_it(client):
    answer = client.get("/api/model", headers={"Origin": "http://evil.example"})
    assert not [name for name in answer.headers if name.startswith("access-control")]
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert client.options("/api/change").status_code == 405


def ask(application, path):
    async def asked():
        transport = httpx.ASGITransport(application, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(path)

    return apart(lambda: asyncio.run(asked()))


@pytest.mark.parametrize("ids", [[2**53 + 1, 2**53 + 2, 7], None])
def test_ids_of_explanations_are_texts(ids):
    names = [str(name) for name in ids or range(3)]
    report = ask(make_app(Answers(*small(ids))), f"/api/explanation?id={names[0]}").json()
    assert report["node"]["id"] == report["neighbourhood"]["nodes"][0]["id"] == names[0]
    assert {part["id"] for part in report["nodes"]["top"]} <= set(names)


@pytest.fixture
def answers():
    return Answers(*small())


def test_long_work_is_refused(answers, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr(answers, "node", lambda node: gate.wait(30))
    answer = ask(make_app(answers, seconds=0.1), "/api/node?id=x")
    gate.set()
    assert answer.status_code == 503
    assert "more than 0.1 seconds" in answer.json()["error"]


def test_a_body_that_does_not_come_is_refused(model, tables):
    async def never():
        await asyncio.Event().wait()

    sent = []

    async def send(message):
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-length", b"9")]
    headers.append((b"content-type", b"application/json"))
    scope = {"type": "http", "method": "POST", "path": "/api/change", "headers": headers}
    scope |= {"query_string": b"", "http_version": "1.1", "raw_path": b"/api/change"}
    application = make_app(Answers(*small()), seconds=0.1)
    apart(lambda: asyncio.run(application(scope, never, send)))
    assert sent[0]["status"] == 503


@pytest.mark.parametrize(("error", "status"), [(ZeroDivisionError, 500), (MemoryError, 503)])
def test_what_breaks_is_told_in_one_sentence(answers, monkeypatch, error, status):
    def fail(node):
        raise error("secret")

    monkeypatch.setattr(answers, "node", fail)
    answer = ask(make_app(answers), "/api/node?id=x")
    assert answer.status_code == status
    assert "secret" not in answer.text
    assert "content-security-policy" in answer.headers


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_when_asked_to(model, tables, tmp_path, number):
    log = tmp_path / "log"
    before = sorted((path, path.stat().st_mtime) for path in tables.parent.rglob("*"))
    with serving(tables.parent / "model", tables, log=log, cwd=tmp_path) as (report, process):
        kept = socket.create_connection(("127.0.0.1", report["port"]))  # an idle client
        assert httpx.get(f"{report['address']}api/model").status_code == 200
        os.kill(process.pid, number)
        assert process.wait() == 0
        kept.close()
    text = log.read_text(encoding="utf-8")
    assert text.rstrip().endswith("The server has stopped.")
    assert "Traceback" not in text
    assert [path.name for path in tmp_path.iterdir()] == ["log"]  # nothing was written
    assert sorted((path, path.stat().st_mtime) for path in tables.parent.rglob("*")) == before


@pytest.mark.parametrize(
    "start", [b"", b"GET / HTTP/1.1\r\nHost: local"], ids=["silent", "partial"]
)
def test_many_waiting_connections_turn_nobody_away(address, start):
    host, port = address.removeprefix("http://").split(":")
    with contextlib.ExitStack() as stack:
        for _ in range(600):
            waiting = stack.enter_context(socket.create_connection((host, int(port)), timeout=600))
            with contextlib.suppress(OSError):  # the server may have closed it already
                waiting.sendall(start)
        assert httpx.get(f"{address}/api/model", timeout=600).status_code == 200


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (b"", b""),
        (b"GET / HTTP/1.1\r\nHost: local", b""),
        (b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET / HTTP/1.1\r\nHost: local"),
    ],
    ids=["silent", "partial", "partial second request"],
)
def test_a_connection_without_a_new_request_is_closed(answers, monkeypatch, first, then):
    monkeypatch.setattr(app, "IDLE_SECONDS", 0.2)
    bound = app.listen("127.0.0.1", 0)
    config = uvicorn.Config(make_app(answers), http=app._Connection, lifespan="off")

    async def closed():
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        reader, writer = await asyncio.open_connection(*bound.getsockname())
        writer.write(first)
        if then:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(then)
        with contextlib.suppress(ConnectionResetError):
            await reader.read()  # until the server closes it
        writer.close()
        with contextlib.suppress(ConnectionResetError):
            await writer.wait_closed()
        server.should_exit = True
        await serving

    apart(lambda: asyncio.run(asyncio.wait_for(closed(), 600)))


def test_a_port_that_is_taken(model, tables):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = hoplite("serve", tables.parent / "model", tables, "--port", port, "--json")
    assert done.returncode == 1
    sentence = f"cannot listen at 127.0.0.1, port {port}: Address already in use"
    assert sentence in json.loads(done.stdout)["error"]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["nowhere", "TABLES"], 1, "does not exist"),
        (["MODEL", "nowhere"], 1, "nowhere"),
        (["MODEL", "cora"], 1, "the model"),
        (["MODEL", "TABLES", "--port", 99999], 2, "--port"),
        (["MODEL", "TABLES", "--host", "no.such.host.invalid"], 1, "cannot listen at"),
        (["MODEL"], 2, "Missing argument"),
        (["MODEL", "TABLES", "--memory", "2GB"], 2, "memory is only used with hop stores"),
    ],
)
def test_wrong_use(model, tables, words, code, sentence):
    places = {"MODEL": tables.parent / "model", "TABLES": tables}
    words = [places.get(word, word) for word in words]
    port = [] if "--port" in words else ["--port", 0]
    done = hoplite("serve", *words, *port)
    assert done.returncode == code, done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_others_are_warned_of(model, tables, tmp_path):
    log = tmp_path / "log"
    words = [tables.parent / "model", tables, "--host", "0.0.0.0"]
    with serving(*words, log=log) as (report, _):
        assert report["address"].startswith("http://127.0.0.1:")
        here = report["address"]
        assert httpx.get(here, headers={"Host": "10.1.2.3:8000"}).status_code == 200
        assert httpx.get(here, headers={"Host": "evil.example"}).status_code == 400
    assert "warning: 0.0.0.0 can be reached from other machines" in log.read_text(encoding="utf-8")
