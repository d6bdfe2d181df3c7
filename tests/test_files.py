"""Atomic writes: the whole file or the old one. JSON: what was written comes back, or an error."""

from __future__ import annotations

import errno
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from hoplite.files import (
    atomic_write,
    atomic_write_bytes,
    open_regular,
    parse_json,
    read_json,
    read_regular,
    to_json,
    write_json,
)


def interrupt(path, error):
    with atomic_write(path) as file:
        file.write(b"half")
        raise error


@pytest.mark.parametrize("error", [ValueError(), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with pytest.raises(type(error)):
        interrupt(path, error)
    assert path.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]


def test_an_error_names_the_file_and_not_its_temporary_one(tmp_path):
    with pytest.raises(FileNotFoundError) as missing:
        atomic_write_bytes(tmp_path / "none" / "a.bin", b"new")
    assert missing.value.filename == str(tmp_path / "none" / "a.bin")
    with pytest.raises(OSError, match="No space") as error:
        interrupt(tmp_path / "a.bin", OSError(errno.ENOSPC, "No space left on device"))
    assert error.value.filename == str(tmp_path / "a.bin")


def test_what_a_killed_writer_left_is_taken_over(tmp_path):
    (tmp_path / ".a.bin.tmp").write_bytes(b"much more than the new content")
    atomic_write_bytes(tmp_path / "a.bin", b"new")
    assert (tmp_path / "a.bin").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]


def test_a_pipe_or_link_in_the_way_is_left_alone(tmp_path):
    (tmp_path / "other").write_bytes(b"mine")
    (tmp_path / ".a.tmp").symlink_to("other")
    os.mkfifo(tmp_path / ".b.tmp")
    for name in "ab":
        atomic_write_bytes(tmp_path / name, b"new")
        assert (tmp_path / name).read_bytes() == b"new"
    assert (tmp_path / "other").read_bytes() == b"mine"
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b", ".a.tmp", ".b.tmp", "other"}


def test_permissions_are_those_of_an_ordinary_new_file(tmp_path):
    (tmp_path / "ordinary").touch()
    atomic_write_bytes(tmp_path / "atomic", b"")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ordinary", "atomic")]
    assert modes[0] == modes[1]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    atomic_write_bytes(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_two_writers_of_one_file_do_not_wait_for_each_other(tmp_path):
    path = tmp_path / "a.json"
    with atomic_write(path) as first:
        first.write(b"first")
        with atomic_write(path) as second:
            second.write(b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]


def test_a_link_to_somebodys_file_is_not_written_to(tmp_path):
    (tmp_path / "theirs").write_bytes(b"precious")
    os.link(tmp_path / "theirs", tmp_path / ".a.json.tmp")
    atomic_write_bytes(tmp_path / "a.json", b"new")
    assert (tmp_path / "theirs").read_bytes() == b"precious"


def test_only_files_are_replaced(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to("/dev/null")
    for path in (pipe, link):
        with pytest.raises(OSError, match="not a regular file"):
            atomic_write_bytes(path, b"x")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert stat.S_ISCHR(link.stat().st_mode)
    assert {path.name for path in tmp_path.iterdir()} == {"pipe", "link"}


def test_a_folder_is_told_before_anything_is_written(tmp_path):
    for path in (tmp_path, Path("/")):
        with pytest.raises(IsADirectoryError, match="it is a folder"), atomic_write(path):
            raise AssertionError
    assert not list(tmp_path.iterdir())


def test_only_regular_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", tmp_path):
        with pytest.raises(OSError, match="it is"):
            open_regular(path)


def test_reads_of_up_to_the_limit(tmp_path):
    path = tmp_path / "a"
    for size in (0, 1, 10):
        path.write_bytes(b"x" * size)
        assert read_regular(path, 10) == b"x" * size
    path.write_bytes(b"x" * 11)
    with pytest.raises(OSError, match="it has 11 bytes, more than the limit of 10"):
        read_regular(path, 10)
    assert read_regular("/proc/self/stat", 10**4)  # it tells size 0
    with pytest.raises(OSError, match="it has more than 10 bytes"):
        read_regular("/proc/self/stat", 10)


@dataclass(frozen=True)
class Sizes:
    nodes: Annotated[int, Meta(ge=0, le=10**12)]
    share: float | None = None
    names: tuple[str, ...] = ()


texts = st.text(st.characters(exclude_categories=("Cs",)))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | texts
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=8,
)  # fmt: skip


@given(content=st.dictionaries(texts.filter(lambda key: key != "checksum"), values))
def test_what_is_written_comes_back(content):
    assert parse_json(to_json(content).encode(), dict) == content
    assert parse_json(to_json(content, None).encode(), dict) == content


def test_an_edited_value_is_found_and_a_file_without_checksum_is_read(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, Sizes(3, 0.5))
    path.write_text(path.read_text().replace("0.5", "0.25"))
    with pytest.raises(ValueError, match="checksum"):
        read_json(path, Sizes)
    path.write_text(json.dumps({"nodes": 4}))
    assert read_json(path, Sizes) == Sizes(4)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{",
        '{"nodes": 1e18}',
        '{"nodes": 10000000000000}',
        '{"nodes": -1}',
        '{"nodes": true}',
        '{"nodes": "3"}',
        '{"nodes": 1, "share": Infinity}',
        '{"nodes": 1, "share": NaN}',
        '{"nodes": 1, "share": 1e999}',
        '{"nodes": 1, "names": ["\\ud800"]}',
        '{"nodes": 1, "names": "ab"}',
        '{"share": 0.5}',
        '{"nodes": 1, "more": ' + "[" * 10**5 + "]" * 10**5 + "}",
        "[" * 10**6,
    ],
)
def test_anything_else_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"."):
        parse_json(text.encode(), Sizes)


def test_not_finite_numbers_are_not_written():
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json({"loss": float("nan")})
