"""Servers that send something else, too much, too slowly or elsewhere; calls that were killed."""

from __future__ import annotations

import dataclasses
import io
import zipfile

import pytest
from tests.datasets.test_fetch import CONTENT, fetching, server, unpacked

from hoplite.datasets.fetch import fetch_archive
from hoplite.datasets.reddit import FILES
from hoplite.errors import DatasetError

__all__ = ["server"]  # a fixture


def test_a_captive_portal_costs_nothing(server, tmp_path):
    """Whoever answers with a page instead of the rest must not cost what has arrived."""
    part = tmp_path / "reddit.zip.part"
    for page in (b"<html>log in</html>", CONTENT[:1000] + b"<html>" * 90_000):
        part.write_bytes(CONTENT[:300_000])
        server.content, server.ranges = page, False
        with pytest.raises(DatasetError, match="other bytes than the 300,000 that have arrived"):
            fetch_archive(server.archive(CONTENT), tmp_path)
        assert part.read_bytes() == CONTENT[:300_000]
    server.content, server.ranges = CONTENT, True
    fetch_archive(server.archive(), tmp_path)
    assert server.asked[-1] == "bytes=300000-"
    assert unpacked(tmp_path)


def test_more_bytes_than_the_archive_can_have(server, tmp_path):
    part = tmp_path / "reddit.zip.part"
    small = dataclasses.replace(server.archive(), most_bytes=500_000)
    with pytest.raises(DatasetError, match=f"sends {len(CONTENT):,} bytes or more and reddit has "):
        fetch_archive(small, tmp_path)
    assert part.read_bytes() == b""  # nothing was read
    part.write_bytes(CONTENT[:300_000])
    server.lengths, server.endless = False, True
    with pytest.raises(DatasetError, match="bytes or more and reddit has at most 500,000"):
        fetch_archive(small, tmp_path)
    server.endless = False
    assert part.read_bytes() == CONTENT[:300_000]


def test_a_byte_at_a_time_is_given_up(server, tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "MOST_REQUESTS", 7)
    server.always_break = 1
    with pytest.raises(DatasetError, match=r"was asked 7 times .* after 7 of .*call again to go o"):
        fetch_archive(server.archive(), tmp_path)
    assert len(server.asked) == 7
    assert (tmp_path / "reddit.zip.part").read_bytes() == CONTENT[:7]


def test_the_whole_time_is_bounded(server, tmp_path, monkeypatch):
    seconds = iter(range(10**6))
    monkeypatch.setattr(fetching, "clock", lambda: next(seconds))
    monkeypatch.setattr(fetching, "CHUNK", 1000)
    monkeypatch.setattr(fetching, "MOST_SECONDS", 20)
    with pytest.raises(DatasetError, match=r"is too slow and stopped after [0-9,]+ of .*to go on"):
        fetch_archive(server.archive(), tmp_path)
    had = (tmp_path / "reddit.zip.part").read_bytes()
    assert 0 < len(had) <= 20_000
    assert CONTENT.startswith(had)


@pytest.mark.parametrize(
    "place",
    [
        "ftp://127.0.0.1/reddit.zip",
        "file:///etc/passwd",
        "http://[::1/reddit.zip",
        "http://127.0.0.1:port/",
        "http://127.0.0.1:99999999/",
        "http://a b/",
        "http://" + "a" * 300 + "/",
        "http:///",
        "data:,x",
    ],
)
def test_redirects_to_nowhere(server, tmp_path, place):
    server.moved = place
    with pytest.raises(
        DatasetError, match=r"reddit\.zip (cannot be reached|answered 302)"
    ) as caught:
        fetch_archive(server.archive(), tmp_path)
    assert "\n" not in str(caught.value)


def test_redirects_without_end(server, tmp_path):
    server.moved = "/reddit.zip"
    with pytest.raises(DatasetError, match=r"answered 302 \(") as caught:
        fetch_archive(server.archive(), tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("unpacked_before", [0, 1, 2])
def test_what_a_kill_while_unpacking_leaves_is_removed(server, tmp_path, unpacked_before):
    (tmp_path / "reddit.zip.part").write_bytes(CONTENT)
    with zipfile.ZipFile(io.BytesIO(CONTENT)) as archive:
        for name in FILES[:unpacked_before]:
            (tmp_path / name).write_bytes(archive.read(name))
    for ending in ("tmp", "0123456789abcdef.tmp"):
        (tmp_path / f".{FILES[1]}.{ending}").write_bytes(b"half")
    fetch_archive(server.archive(), tmp_path)
    assert unpacked(tmp_path)
