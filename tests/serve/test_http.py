"""The server as a client meets it: a real process, a real socket, many requests at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import threading
import time

import httpx
import msgspec
import numpy as np
import pytest
from tests.commands import hoplite
from tests.serve.conftest import AMOUNT, IDS, IMAGE, SCRIPT, apart, cells, serving
from tests.serve.test_answers import load

from benchmarks import serving as benchmark
from benchmarks.measure import Context
from hoplite.explain import Explainer
from hoplite.explain.summary import Changes, Summary
from hoplite.serve.app import make_app
from hoplite.serve.guard import HEADERS
from hoplite.serve.schema import (
    ChangeAnswer,
    FoundExamples,
    FoundFeatures,
    FoundNodes,
    ModelAnswer,
    NodeAnswer,
)
from hoplite.serve.server import listen
from hoplite.serve.work import Overloaded, Work

CHANGE = {"age": 55.5, "town": "Bonn"}
ANSWERS = {
    "/api/model": ModelAnswer,
    "/api/examples": FoundExamples,
    "/api/nodes": FoundNodes,
    "/api/features": FoundFeatures,
    "/api/node": NodeAnswer,
    "/api/explanation": Summary,
    "/api/flips": Changes,
    "/api/change": ChangeAnswer,
}


@pytest.fixture(scope="module")
def client(address):
    with httpx.Client(base_url=address, timeout=60) as made:
        yield made


def test_a_body_does_not_wait_for_the_headers_to_be_confirmed():
    """Nagle's algorithm, which asyncio turns off only for sockets that name their protocol."""

    async def sent_at_once():
        found = asyncio.get_running_loop().create_future()

        def accepted(reader, writer):
            own = writer.get_extra_info("socket")
            found.set_result(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        bound = listen("127.0.0.1", 0)
        async with await asyncio.start_server(accepted, sock=bound):
            _, writer = await asyncio.open_connection(*bound.getsockname())
            assert await asyncio.wait_for(found, 10)
            writer.close()

    asyncio.run(sent_at_once())


def test_fifty_requests_at_once_are_all_answered_as_the_library_does(
    address, model, tables, changed
):
    graph = load(tables, model)
    wanted, explainer = model.predict_proba(graph), Explainer(model, graph)
    names = [*[name for name in graph.node_ids if name != SCRIPT][:16], SCRIPT]

    async def ask_all():
        limits = httpx.Limits(max_connections=50)
        async with httpx.AsyncClient(base_url=address, timeout=60, limits=limits) as client:
            asked = []
            for name in names:
                asked.append(client.get("/api/node", params={"id": name}))
                asked.append(client.get("/api/explanation", params={"id": name}))
                asked.append(client.post("/api/change", json={"id": name, "features": CHANGE}))
            assert len(asked) == 51
            return await asyncio.gather(*asked)

    answers = apart(lambda: asyncio.run(ask_all()))
    assert {answer.status_code for answer in answers} == {200}
    for name, node, why, change in zip(
        names, answers[::3], answers[1::3], answers[2::3], strict=True
    ):
        place = list(graph.node_ids).index(name)
        told = msgspec.json.decode(node.content, type=NodeAnswer)
        shares = [output.value for output in told.prediction.outputs]
        np.testing.assert_allclose(shares, wanted[place], rtol=1e-5)
        found = msgspec.json.decode(why.content, type=Summary)
        mine = explainer.explain(name).summary()
        assert (found.class_, found.against, found.node) == (mine.class_, mine.against, mine.node)
        for one, other in zip(found.hops, mine.hops, strict=True):
            assert one.contribution == pytest.approx(other.contribution, rel=1e-9, abs=1e-12)
        moved = msgspec.json.decode(change.content, type=ChangeAnswer)
        assert moved.id == name
        before = [output.value for output in moved.before.outputs]
        np.testing.assert_allclose(before, wanted[place], rtol=1e-5)
    other = changed(model, SCRIPT, {"age": "55.5", "town": "Bonn"})
    after = [output.value for output in moved.after.outputs]  # of the last, which is SCRIPT
    place = list(other.node_ids).index(SCRIPT)
    np.testing.assert_allclose(after, model.predict_proba(other)[place], rtol=1e-4)


def test_ids_are_any_text(client):
    for name in IDS:
        answer = client.get("/api/node", params={"id": name})
        assert answer.json()["id"] == name
        first = client.get("/api/nodes", params={"prefix": name, "limit": 1}).json()["nodes"]
        assert [one["id"] for one in first] == [name]
    found = client.get("/api/nodes", params={"prefix": "<SCR"}).json()["nodes"]
    assert [one["id"] for one in found] == [SCRIPT]


def test_features_are_described(client):
    query = {"id": SCRIPT, "limit": 100}
    found = client.get("/api/features", params=query).json()["features"]
    kinds = {one["name"]: one["kind"] for one in found}
    assert kinds == {
        AMOUNT: "number", "age": "number", "member": "truth", "since": "date", "town": "text"
    }  # fmt: skip
    row = next(row for row in cells() if row["who"] == SCRIPT)
    assert {one["name"] for one in found if one["value"] is None} == {
        name for name in kinds if row[name] == ""
    }
    assert client.get("/api/features?prefix=age").json()["features"][0]["value"] is None


def test_every_answer_is_as_described(client):
    description = client.get("/openapi.json").json()
    assert description["openapi"] == "3.1.0"
    assert set(description["paths"]) == set(ANSWERS)
    schemas = description["components"]["schemas"]
    for path, kind in ANSWERS.items():
        ((method, told),) = description["paths"][path].items()
        if method == "post":
            answer = client.post(path, json={"id": SCRIPT, "features": CHANGE})
            body = told["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            assert set(schemas[body.rsplit("/", 1)[1]]["properties"]) == {"id", "features"}
        else:
            required = [one["name"] for one in told["parameters"] if one["required"]]
            answer = client.get(path, params=dict.fromkeys(required, SCRIPT))
        assert answer.status_code == 200
        msgspec.json.decode(answer.content, type=kind)
        schema = told["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
        names = schemas[schema.rsplit("/", 1)[1]]["properties"]
        assert set(answer.json()) <= set(names)
    text = json.dumps(description)
    for name in [one.split('"')[0] for one in text.split("#/components/schemas/")[1:]]:
        assert name in schemas


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/api/node", 400, "missing required field `id`"),
        ("/api/node?id=nobody", 404, "'nobody' is not the id of a node"),
        ("/api/node?id=7&id=-", 400, "given twice"),
        ("/api/node?id=7&more=1", 400, "unknown field `more`"),
        ("/api/node?id=" + "x" * 1001, 400, "length <= 1000"),
        ("/api/nodes?limit=0", 400, ">= 1"),
        ("/api/nodes?limit=101", 400, "<= 100"),
        ("/api/nodes?limit=many", 400, "Expected `int`"),
        ("/api/explanation?id=7&top=51", 400, "<= 50"),
        ("/api/explanation?id=7&class=bird", 422, "class_ is 'bird'"),
        ("/api/explanation?id=7&class=dog&against=dog", 422, "which is the explained class"),
        ("/api/change", 405, "Method not allowed"),
        ("/files/answers.py", 404, "nothing at this address"),
        ("/files/..%2Fapp.py", 404, "nothing at this address"),
        ("/api/" + "x" * 300, 404, "nothing at this address"),
    ],
)
def test_wrong_queries(client, path, status, sentence):
    answer = client.get(path)
    assert answer.status_code == status
    assert "/api/" not in answer.json()["error"]  # the page shows it
    hint = {"hint": "/api/nodes?prefix=... lists ids"} if "id=nobody" in path else {}
    assert answer.json() == {"error": answer.json()["error"]} | hint
    assert sentence in answer.json()["error"]
    for name in HEADERS:
        assert name in answer.headers


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ("", 400, "Invalid JSON"),
        ("{", 400, "Invalid JSON"),
        ('{"id": "7", "features": {"age": NaN}}', 400, "Invalid JSON"),
        ("[" * 60_000, 422, "Expected `object`"),
        ('{"id": "7", "features": {"age": 1e999}}', 422, "out of range"),
        ('{"id": 7, "features": {}}', 422, "Expected `str`"),
        ('{"id": "7"}', 422, "missing required field `features`"),
        ('{"id": "7", "features": {}, "more": 1}', 422, "unknown field"),
        ('{"id": "7", "features": {"age": [1]}}', 422, "got `array`"),
        ('{"id": "7", "features": {"age": "old"}}', 422, "age is 'old'; give a number."),
        ('{"id": "7", "features": {"<i>nothing": 1}}', 422, "'<i>nothing' is no feature"),
        ('{"id": "nobody", "features": {}}', 404, "'nobody'"),
        (json.dumps({"id": "7", "features": {f"f{i}": 1 for i in range(101)}}), 422, "length"),
        (json.dumps({"id": "7", "features": {"age": "x" * 70_000}}), 413, "65,536 bytes"),
        (b'{"id": "\xff", "features": {}}', 400, "Invalid JSON"),
    ],
)
def test_wrong_bodies(client, body, status, sentence):
    answer = client.post("/api/change", content=body, headers={"Content-Type": "application/json"})
    told = ["error", "hint"] if status == 404 else ["error"]
    assert (answer.status_code, list(answer.json())) == (status, told)
    assert sentence in answer.json()["error"]


def test_other_types_of_bodies_are_refused(client):
    answer = client.post("/api/change", content="{}", headers={"Content-Type": "text/plain"})
    assert answer.status_code == 415


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("LOCALHOST:99", 200), ("127.0.0.1", 200), ("[::1]:8000", 200),
        ("evil.example", 400), ("evil.example:80", 400), ("localhost.evil.example", 400),
        ("127.0.0.1.evil.example", 400), ("192.168.0.1", 400), ("", 400),
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


def test_the_page_escapes_names(client):
    page = client.get("/").text
    assert page.count("<script") == 1
    assert "http" not in page.replace("http-equiv", "")  # nothing comes from elsewhere
    assert client.get("/files/page.js").headers["content-type"].startswith("text/javascript")


@pytest.fixture(scope="module")
def answers(model, tables):
    from hoplite.serve.answers import Answers

    return Answers(model, load(tables, model))


def test_too_much_work_is_refused_and_the_rest_is_done(answers, monkeypatch):
    """Two threads are held, three requests wait; all others are told so at once."""
    gate = threading.Event()
    monkeypatch.setattr(answers, "node", lambda node: gate.wait(30) and {"id": node})
    app = make_app(answers, work=Work(threads=2, waiting=3))

    async def ask_all():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            waiting = [asyncio.create_task(client.get(f"/api/node?id={i}")) for i in range(5)]
            await asyncio.sleep(0.1)
            refused = [await client.get("/api/node?id=x") for _ in range(3)]
            model = await client.get("/api/model")
            gate.set()
            done = await asyncio.gather(*waiting)
            return done, refused, model, await client.get("/api/node?id=y")

    done, refused, model, last = apart(lambda: asyncio.run(ask_all()))
    assert [one.json()["id"] for one in done] == [*"01234"]
    assert {(one.status_code, one.headers["retry-after"]) for one in refused} == {(503, "1")}
    assert "are waiting already" in refused[0].json()["error"]
    assert (model.status_code, last.status_code) == (200, 200)


def test_long_work_is_told_and_holds_its_place():
    work, gate = Work(threads=1, waiting=0, seconds=0.05), threading.Event()

    async def both():
        with pytest.raises(Overloaded, match=r"more than 0\.05 seconds"):
            await work.run(gate.wait, 30)
        await asyncio.sleep(0.05)  # what is called back has been
        with pytest.raises(Overloaded, match="1 requests are waiting"):
            await work.run(gate.wait, 30)
        gate.set()
        await asyncio.sleep(0.1)
        return await work.run(pow, 2, 3)

    assert apart(lambda: asyncio.run(both())) == 8


def test_what_breaks_is_told_in_one_sentence(answers, monkeypatch):
    monkeypatch.setattr(answers, "node", lambda node: 1 / 0)
    app = make_app(answers)

    async def ask():
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get("/api/node?id=x")

    answer = apart(lambda: asyncio.run(ask()))
    assert answer.status_code == 500
    assert "ZeroDivision" not in answer.text
    assert "content-security-policy" in answer.headers


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_when_asked_to(model, tables, tmp_path, number):
    log = tmp_path / "log"
    log.touch()
    before = sorted((path, path.stat().st_mtime) for path in tables.parent.rglob("*"))
    with serving(tables.parent / "model", tables, log=log, cwd=tmp_path) as (told, process):
        kept = socket.create_connection(("127.0.0.1", told["port"]))  # an idle client
        assert httpx.get(f"{told['address']}api/model").status_code == 200
        started = time.monotonic()
        os.kill(process.pid, number)
        assert process.wait(20) == 0
        assert time.monotonic() - started < 10
        kept.close()
    text = log.read_text(encoding="utf-8")
    assert text.rstrip().endswith("The server has ended.")
    assert "Traceback" not in text
    assert [path.name for path in tmp_path.iterdir()] == ["log"]  # nothing was written
    assert sorted((path, path.stat().st_mtime) for path in tables.parent.rglob("*")) == before


def test_a_port_that_is_taken(model, tables):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = hoplite("serve", tables.parent / "model", tables, "--port", port, "--json")
    assert done.returncode == 1
    sentence = f"port {port} of 127.0.0.1 is taken by another program; give another --port"
    assert sentence in json.loads(done.stdout)["error"]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["nowhere", "TABLES"], 1, "not a model folder"),
        (["MODEL", "nowhere"], 1, "nowhere"),
        (["MODEL", "cora"], 1, "the model"),
        (["MODEL", "TABLES", "--port", 99999], 2, "--port"),
        (["MODEL", "TABLES", "--host", "no.such.host.invalid"], 1, "cannot listen at"),
        (["MODEL"], 2, "Missing argument"),
        (["MODEL", "TABLES", "--memory", "2GB"], 2, "memory is given, which is for hop stores"),
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
    log.touch()
    words = [tables.parent / "model", tables, "--host", "0.0.0.0"]
    with serving(*words, log=log) as (told, _):
        assert told["address"].startswith("http://127.0.0.1:")
        here = told["address"]
        assert httpx.get(here, headers={"Host": "10.1.2.3:8000"}).status_code == 200
        assert httpx.get(here, headers={"Host": "evil.example"}).status_code == 400
    assert "warning: 0.0.0.0 is reached from other machines" in log.read_text(encoding="utf-8")


def test_hostile_names_stay_text(client):
    found = client.get("/api/node", params={"id": IMAGE})
    assert found.headers["content-type"] == "application/json"
    assert found.json()["id"] == IMAGE


def test_the_benchmark_counts_what_is_lost(tmp_path, monkeypatch):
    @contextlib.contextmanager
    def served(model):
        log = tmp_path / "log"
        log.touch()
        with serving(model, "cora", log=log) as (told, _):
            yield told["address"]

    monkeypatch.setattr(benchmark, "served", served)
    context = Context(quick=True, threads=1, folder=tmp_path)
    outcome = apart(benchmark.run, context, 8)
    *times, lost = outcome.figures
    assert [figure.case.rsplit(" ", 1)[1] for figure in times] == ["p50", "p95"] * 2
    assert 0 < times[0].ours <= times[1].ours
    assert (lost.case, lost.ours, lost.passed) == ("lost, of 160", 0, True)
    assert [figure.goal is None for figure in times] == [True, False, True, True]
    monkeypatch.setattr(benchmark, "MIXED", (wrong_request,) * 4)
    assert apart(benchmark.run, context, 8).figures[-1].ours == 160


def wrong_request(node):
    return "GET", f"/api/explanation?node={node}", None
