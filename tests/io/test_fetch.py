"""Downloads from a web server on this machine, which can break off, forget and lie."""

from __future__ import annotations

import hashlib
import http.server
import io
import threading
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

from hoplite.errors import ConfigError, DatasetError
from hoplite.io import datasets, fetch, load
from hoplite.io.datasets import FILES, Archive, fetch_archive


def small_reddit() -> bytes:
    rng = np.random.default_rng(0)
    nodes, graph, buffer = io.BytesIO(), io.BytesIO(), io.BytesIO()
    features = rng.standard_normal((30, 4000))  # noise, so that the archive is not tiny
    kinds = np.repeat([1, 2, 3], [20, 5, 5])
    np.savez(nodes, feature=features, label=np.arange(30) % 3, node_types=kinds)
    sp.save_npz(graph, sp.coo_matrix(rng.random((30, 30)) < 0.2))
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../escaped.txt", b"no")
        for name, content in zip(FILES, (nodes, graph), strict=True):
            archive.writestr(name, content.getvalue())
    return buffer.getvalue()


CONTENT = small_reddit()


class Server(http.server.ThreadingHTTPServer):
    """Serves ``content``; each of the next answers breaks off after a number of bytes."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.ranges, self.status, self.moved = CONTENT, True, 200, ""
        self.breaks: list[int] = []
        self.asked: list[str | None] = []

    def handle_error(self, *_: object) -> None:
        """Clients may leave whenever they like."""

    def archive(self, content: bytes | None = None, **changes) -> Archive:
        digest = hashlib.sha256(self.content if content is None else content).hexdigest()
        url = f"http://127.0.0.1:{self.server_address[1]}/reddit.zip"
        return Archive(
            **({"name": "reddit", "url": url, "sha256": digest, "members": FILES} | changes)
        )


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        server, asked, start = self.server, self.headers.get("Range"), 0
        server.asked.append(asked)
        if server.moved:
            self.send_response(302)
            self.send_header("Location", server.moved)
            self.end_headers()
            return
        if asked is not None and server.ranges:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(server.content):
                self.send_error(416)
                return
        if server.status != 200:
            self.send_error(server.status)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(server.content) - start))
        self.end_headers()
        end = start + server.breaks.pop(0) if server.breaks else None
        self.wfile.write(server.content[start:end])


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    found = Server()
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


def test_what_arrives_is_what_load_reads(server, tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "ARCHIVES", {"reddit": server.archive()})
    monkeypatch.setenv("HOPLITE_DATA", str(tmp_path))
    calls = []
    assert fetch("reddit", progress=lambda what, share: calls.append(share)) == tmp_path / "reddit"
    assert calls == sorted(calls)
    assert 0 < calls[0] <= calls[-1] <= 1
    assert sorted(path.name for path in (tmp_path / "reddit").iterdir()) == sorted(FILES)
    assert not (tmp_path / "escaped.txt").exists()
    assert load("reddit").num_nodes == 30
    fetch("reddit")  # nothing to do
    assert len(server.asked) == 1
    with pytest.raises(ConfigError, match="fetch is 'cora'"):
        fetch("cora")


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_download_continues(server, tmp_path, ranges):
    server.ranges, server.breaks, part = (
        ranges,
        [200_000, 100_000],
        tmp_path / "reddit.download" / "part.zip",
    )
    sizes = []
    for _ in range(2):
        with pytest.raises(DatasetError, match=r"cannot be downloaded .* try again to resume"):
            fetch_archive(server.archive(), tmp_path)
        sizes.append(part.stat().st_size)
    assert sizes[0] > 100_000
    assert (sizes[1] > sizes[0]) is ranges
    fetch_archive(server.archive(), tmp_path)
    assert server.asked == [None, *(f"bytes={size}-" for size in sizes)]
    assert load(tmp_path).num_nodes == 30
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)


@pytest.mark.parametrize(
    ("content", "changes"),
    [
        (b"other", {}),
        (b"no zip file", {"sha256": hashlib.sha256(b"no zip file").hexdigest()}),
        (CONTENT, {"members": ("not there",)}),
        (CONTENT, {"max_bytes": 1000}),
    ],
)
def test_wrong_bytes_are_removed(server, tmp_path, content, changes):
    server.content = content
    with pytest.raises(
        DatasetError, match="does not have the expected SHA-256 checksum, or is not a zip"
    ):
        fetch_archive(server.archive(CONTENT, **changes), tmp_path)
    assert [*tmp_path.iterdir()] == []
    server.content = CONTENT
    fetch_archive(server.archive(), tmp_path)
    assert load(tmp_path).num_nodes == 30


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("status", 404, "404"),
        ("status", 503, "503"),
        ("moved", "ftp://127.0.0.1/x", "cannot be downloaded"),
        ("moved", "file:///etc/passwd", "cannot be downloaded"),
        ("moved", "/reddit.zip", "redirects"),
    ],
)
def test_servers_that_do_not_serve(server, tmp_path, attribute, value, message):
    setattr(server, attribute, value)
    with pytest.raises(DatasetError, match=message) as caught:
        fetch_archive(server.archive(), tmp_path)
    assert "\n" not in str(caught.value)


def test_folders_that_cannot_be_written(server, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DatasetError, match="cannot be written"):
        fetch_archive(server.archive(), tmp_path / "file")
