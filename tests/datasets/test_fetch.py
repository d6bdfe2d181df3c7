"""Downloads from a real web server on this machine, which can break off, forget and lie."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import importlib
import io
import json
import os
import signal
import socket
import threading
import time
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from tests.commands import Process
from typer.testing import CliRunner

from hoplite.cli import app
from hoplite.datasets import fetch, load
from hoplite.datasets.fetch import Archive, fetch_archive
from hoplite.datasets.reddit import FILES
from hoplite.errors import ConfigError, DatasetError

fetching = importlib.import_module("hoplite.datasets.fetch")  # the package shows the function


def zipped(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def small_reddit() -> bytes:
    rng = np.random.default_rng(0)
    nodes, graph = io.BytesIO(), io.BytesIO()
    kinds = np.repeat([1, 2, 3], [20, 5, 5])
    features = rng.standard_normal((30, 4000))  # noise, so that the archive is not tiny
    np.savez(nodes, feature=features, label=np.arange(30) % 3, node_types=kinds)
    sp.save_npz(graph, sp.coo_matrix(rng.random((30, 30)) < 0.2))
    extra = {"../escaped.txt": b"no", "readme.txt": b"no"}
    return zipped(extra | dict(zip(FILES, (nodes.getvalue(), graph.getvalue()), strict=True)))


CONTENT = small_reddit()
CHUNK = 50_000  # bytes, of answers in chunks
FRAME = len(f"{CHUNK:x}") + 4  # bytes more that a chunk takes


class Server(http.server.ThreadingHTTPServer):
    """Serves ``content``; each of the next answers breaks off after a number of bytes."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.ranges, self.status = CONTENT, True, 200
        self.breaks: list[int] = []
        self.always_break = 0
        self.lengths = True
        self.chunked = False
        self.wrong_range = False
        self.moved = ""
        self.endless = False
        self.stall = 0  # so many bytes of an answer are sent, and no more for now
        self.asked: list[str | None] = []

    def handle_error(self, *_: object) -> None:
        """Clients may leave whenever they like."""

    def archive(self, content: bytes | None = None, members: tuple[str, ...] = FILES) -> Archive:
        digest = hashlib.sha256(self.content if content is None else content).hexdigest()
        url = f"http://127.0.0.1:{self.server_address[1]}/reddit.zip"
        return Archive("reddit", url, digest, members)


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        server, asked = self.server, self.headers.get("Range")
        server.asked.append(asked)
        if server.status != 200:
            self.send_error(server.status)
            return
        if server.moved:
            self.send_response(302)
            self.send_header("Location", server.moved)
            self.end_headers()
            return
        start = 0
        if asked is not None and server.ranges:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(server.content):
                self.send_error(416)
                return
            self.send_response(206)
            shown = start + 1 if server.wrong_range else start
            last = len(server.content) - 1
            self.send_header("Content-Range", f"bytes {shown}-{last}/{last + 1}")
        else:
            self.send_response(200)
        body = server.content[start:]
        broken = server.breaks.pop(0) if server.breaks else server.always_break or None
        if server.chunked:
            self.send_header("Transfer-Encoding", "chunked")
            body = b"".join(
                b"%x\r\n%b\r\n" % (len(piece), piece)
                for piece in (body[i : i + CHUNK] for i in range(0, len(body) + CHUNK, CHUNK))
            )
        elif server.lengths:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        for place in range(0, len(body[:broken]), 20_000):
            while 0 < server.stall <= place:
                time.sleep(0.01)
            self.wfile.write(body[:broken][place : place + 20_000])
        with contextlib.suppress(OSError):  # until the client has had enough
            while server.endless:
                self.wfile.write(bytes(20_000))


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def unpacked(folder):
    with zipfile.ZipFile(io.BytesIO(CONTENT)) as archive:
        assert all((folder / name).read_bytes() == archive.read(name) for name in FILES)
    assert names(folder) == sorted(FILES)
    assert not (folder.parent / "escaped.txt").exists()
    return True


def test_a_download_is_complete_and_loads(server, tmp_path):
    told: list[tuple[str, float]] = []
    folder = tmp_path / "a" / "reddit"
    fetch_archive(server.archive(), folder, progress=lambda *state: told.append(state))
    assert unpacked(folder)
    assert server.asked == [None]
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert shares[-1] == 0.9
    assert "of 1 MB" in told[-2][0]
    assert load(folder).num_nodes == 30
    fetch_archive(server.archive(), folder)
    assert server.asked == [None]  # what is there is not asked for again


def test_broken_connections_are_resumed_in_one_call(server, tmp_path):
    server.breaks = [100_000, 1, 250_000]
    fetch_archive(server.archive(), tmp_path)
    assert unpacked(tmp_path)
    assert server.asked == [None, "bytes=100000-", "bytes=100001-", "bytes=350001-"]


def test_a_second_call_goes_on(server, tmp_path):
    server.breaks = [100_000]
    server.always_break = -len(CONTENT)  # nothing at all
    with pytest.raises(DatasetError, match=rf"broke off after 100,000 of {len(CONTENT):,} bytes"):
        fetch_archive(server.archive(), tmp_path)
    assert names(tmp_path) == ["reddit.zip.part"]
    server.always_break = 0
    fetch_archive(server.archive(), tmp_path)
    assert server.asked[-1] == "bytes=100000-"
    assert unpacked(tmp_path)


def test_a_server_without_ranges_starts_again(server, tmp_path):
    server.ranges = False
    server.breaks = [100_000]
    fetch_archive(server.archive(), tmp_path)
    assert server.asked == [None, "bytes=100000-"]
    assert unpacked(tmp_path)


def test_a_server_without_ranges_that_always_breaks_off_is_given_up(server, tmp_path):
    server.ranges = False
    server.always_break = 100_000
    with pytest.raises(DatasetError, match="broke off after 100,000"):
        fetch_archive(server.archive(), tmp_path)
    assert len(server.asked) == 2


def test_a_server_that_tells_no_length(server, tmp_path):
    server.lengths = False
    fetch_archive(server.archive(), tmp_path)
    assert unpacked(tmp_path)


def test_an_answer_in_chunks(server, tmp_path):
    server.chunked = True
    fetch_archive(server.archive(), tmp_path)
    assert unpacked(tmp_path)
    assert server.asked == [None]


@pytest.mark.parametrize(
    ("sent", "arrived"),
    [
        (2 * (CHUNK + FRAME), 2 * CHUNK),  # between two chunks
        (2 * (CHUNK + FRAME) + 2, 2 * CHUNK),  # within the size of one
        (2 * (CHUNK + FRAME) - 1, 2 * CHUNK),  # within the end of one
        (CHUNK + FRAME + FRAME - 2 + 7, CHUNK + 7),  # within one
    ],
)
def test_an_answer_in_chunks_that_ends_early_is_resumed(server, tmp_path, sent, arrived):
    server.chunked, server.breaks = True, [sent]
    fetch_archive(server.archive(), tmp_path)
    assert unpacked(tmp_path)
    assert server.asked == [None, f"bytes={arrived}-"]


def test_answers_in_chunks_that_always_end_early_are_given_up(server, tmp_path):
    server.chunked, server.ranges, server.always_break = True, False, CHUNK + FRAME
    with pytest.raises(DatasetError, match=f"broke off after {CHUNK:,} of an unknown number"):
        fetch_archive(server.archive(), tmp_path)
    assert names(tmp_path) == ["reddit.zip.part"]


def test_a_complete_part_needs_no_network(server, tmp_path):
    (tmp_path / "reddit.zip.part").write_bytes(CONTENT)
    fetch_archive(server.archive(), tmp_path)
    assert server.asked == []
    assert unpacked(tmp_path)


@pytest.mark.parametrize("content", [CONTENT[:-1000], CONTENT + b"more", b"<html>", b""])
def test_other_bytes_are_refused_and_removed(server, tmp_path, content):
    server.content = content
    with pytest.raises(DatasetError, match=rf"gave {len(content):,} bytes with SHA-256"):
        fetch_archive(server.archive(CONTENT), tmp_path)
    server.content = CONTENT
    fetch_archive(server.archive(), tmp_path)
    assert server.asked[-1] is None
    assert unpacked(tmp_path)


def test_a_part_of_something_else_is_refused_and_removed(server, tmp_path):
    (tmp_path / "reddit.zip.part").write_bytes(bytes(len(CONTENT) + 5))
    with pytest.raises(DatasetError, match="call again to download them anew"):
        fetch_archive(server.archive(), tmp_path)
    fetch_archive(server.archive(), tmp_path)
    assert unpacked(tmp_path)


def corrupt(content: bytes) -> bytes:
    """The compressed bytes of the first member changed, the directory left as it is."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        start = archive.getinfo(FILES[0]).header_offset + 5000
    return content[:start] + bytes(200) + content[start + 200 :]


@pytest.mark.parametrize(
    "content",
    [corrupt(CONTENT), b"PK no zip", zipped({FILES[0]: b""}), zipped({f"a/{FILES[0]}": b""})],
)
def test_archives_that_are_no_sound_zip(server, tmp_path, content):
    server.content = content
    with pytest.raises(DatasetError, match=r"reddit\.zip is no sound zip file with .*; it was rem"):
        fetch_archive(server.archive(), tmp_path)
    assert FILES[1] not in names(tmp_path)
    assert "reddit.zip.part" not in names(tmp_path)
    assert not any(name.endswith(".tmp") for name in names(tmp_path))


@pytest.mark.parametrize(("status", "said"), [(404, "Not Found"), (503, "Service Unavailable")])
def test_refusals(server, tmp_path, status, said):
    server.status = status
    with pytest.raises(DatasetError, match=rf"reddit\.zip answered {status} \({said}\); if it has"):
        fetch_archive(server.archive(), tmp_path)


def test_a_wrong_range_is_refused(server, tmp_path):
    server.breaks, server.wrong_range = [1000], True
    with pytest.raises(DatasetError, match="sent the range 'bytes 1001-"):
        fetch_archive(server.archive(), tmp_path)


def unused_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.mark.parametrize(
    ("place", "reason"),
    [("127.0.0.1:{port}", "Connection refused"), ("no-such-host.invalid", ".+")],
)
def test_no_network(tmp_path, monkeypatch, place, reason):
    monkeypatch.setenv("no_proxy", "*")
    place = place.format(port=unused_port())
    archive = Archive("reddit", f"http://{place}/reddit.zip", "0" * 64, FILES)
    with pytest.raises(DatasetError, match=rf"cannot be reached \({reason}\); check the network"):
        fetch_archive(archive, tmp_path)


def test_a_silent_server_times_out(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(fetching, "TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/reddit.zip"
        with pytest.raises(DatasetError, match=r"cannot be reached \(timed out\)"):
            fetch_archive(Archive("reddit", url, "0" * 64, FILES), tmp_path)


def process(archive: Archive, folder, before: str = "") -> Process:
    code = (
        f"{before}\nimport sys\nfrom pathlib import Path\n"
        "from hoplite.datasets.fetch import Archive, fetch_archive\n"
        "from hoplite.errors import DatasetError\n"
        "url, digest, folder, *members = sys.argv[1:]\n"
        "try:\n    fetch_archive(Archive('reddit', url, digest, tuple(members)), Path(folder))\n"
        "except DatasetError as error:\n    sys.exit(str(error))\n"
    )
    arguments = [archive.url, archive.sha256, str(folder), *archive.members]
    return Process(code, *arguments)


def test_killed_and_started_again(server, tmp_path):
    part = tmp_path / "reddit.zip.part"
    server.stall = 200_000
    for _ in range(2):
        had = part.stat().st_size if part.exists() else 0
        running = process(server.archive(), tmp_path)
        while not part.exists() or part.stat().st_size < had + 100_000:
            time.sleep(0.005)
            assert running.poll() is None
        with pytest.raises(DatasetError, match="is being downloaded by another process"):
            fetch_archive(server.archive(), tmp_path)
        os.kill(running.pid, signal.SIGKILL)
        running.communicate()
        assert names(tmp_path) == ["reddit.zip.part"]
    had = part.stat().st_size
    assert CONTENT.startswith(part.read_bytes())
    server.stall = 0
    fetch_archive(server.archive(), tmp_path)
    assert server.asked[-1] == f"bytes={had}-"
    assert unpacked(tmp_path)


def test_no_room(server, tmp_path):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))"
    running = process(server.archive(), tmp_path, limit)
    error = running.communicate(timeout=600)[1]
    assert running.returncode == 1
    assert "cannot be written: File too large; what has arrived is kept" in error
    assert len(error.splitlines()) == 1
    fetch_archive(server.archive(), tmp_path)
    assert server.asked[-1] == "bytes=200000-"
    assert unpacked(tmp_path)


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DatasetError, match="cannot be written"):
        fetch("reddit", tmp_path / "file" / "reddit")
    with pytest.raises(DatasetError, match="is a file; give a folder"):
        fetch("reddit", tmp_path / "file")


def test_unknown_names(tmp_path):
    with pytest.raises(ConfigError, match=r"fetch is 'redit'; .*Did you mean 'reddit'\?"):
        fetch("redit", tmp_path)


def test_the_command(server, tmp_path, monkeypatch):
    monkeypatch.setitem(fetching.ARCHIVES, "reddit", server.archive())
    monkeypatch.setenv("HOPLITE_DATA", str(tmp_path))
    run = CliRunner().invoke(app, ["datasets", "--json"])
    assert "--fetch reddit" in json.loads(run.stdout)["others"][0]["source"]
    run = CliRunner().invoke(app, ["datasets", "--fetch", "reddit", "--json"])
    assert json.loads(run.stdout) == {"dataset": "reddit", "folder": str(tmp_path / "reddit")}
    assert load("reddit").num_nodes == 30
    assert str(tmp_path / "reddit") in CliRunner().invoke(app, ["datasets"]).stdout
    run = CliRunner().invoke(
        app, ["datasets", "--fetch", "reddit", "--folder", str(tmp_path / "b")]
    )
    assert f"hoplite train {tmp_path / 'b'}" in run.stdout
    assert unpacked(tmp_path / "b")


def test_the_command_refuses(tmp_path, monkeypatch):
    run = CliRunner().invoke(app, ["datasets", "--folder", str(tmp_path)])
    assert isinstance(run.exception, ConfigError)
    monkeypatch.setenv("no_proxy", "*")
    nowhere = Archive("reddit", f"http://127.0.0.1:{unused_port()}/reddit.zip", "0" * 64, FILES)
    monkeypatch.setitem(fetching.ARCHIVES, "reddit", nowhere)
    run = CliRunner().invoke(app, ["datasets", "--fetch", "reddit", "--folder", str(tmp_path)])
    assert isinstance(run.exception, DatasetError)
