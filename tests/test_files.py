"""Atomic writes: the whole file or the old one."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from hoplite import files
from hoplite.files import atomic_write, atomic_write_bytes, atomic_write_text, read_regular


def test_replaces_the_file(tmp_path):
    path = tmp_path / "a.bin"
    atomic_write_bytes(path, b"old")
    atomic_write_text(path, "né\n")
    assert path.read_bytes() == b"n\xc3\xa9\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]


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


def test_nothing_is_seen_before_the_end(tmp_path):
    path = tmp_path / "a.bin"
    with atomic_write(path) as file:
        file.write(b"half")
        file.flush()
        assert not path.exists()
    assert path.read_bytes() == b"half"


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


def test_writers_at_the_same_time_follow_each_other(tmp_path):
    path, failures = tmp_path / "a.bin", []

    def write(letter):
        try:
            for _ in range(20):
                with atomic_write(path) as file:
                    for _ in range(10):
                        file.write(letter * 1000)
                        file.flush()
                assert path.read_bytes() in [one * 10_000 for one in (b"x", b"y", b"z")]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in (b"x", b"y", b"z")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]


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


def test_a_folder_in_the_way_is_an_error_that_leaves_nothing(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match=r"."):
        atomic_write_bytes(tmp_path / "a", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_long_names_fit(tmp_path):
    for name in ("x" * 250, "ß" * 125):
        atomic_write_bytes(tmp_path / name, b"new")
        assert (tmp_path / name).read_bytes() == b"new"


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


def test_reads_of_up_to_the_limit(tmp_path):
    path = tmp_path / "a"
    for size in (0, 1, 10):
        path.write_bytes(b"x" * size)
        assert read_regular(path, 10) == b"x" * size
    path.write_bytes(b"x" * 11)
    with pytest.raises(OSError, match="it has 11 bytes, and at most 10 are read"):
        read_regular(path, 10)
    assert read_regular("/proc/self/stat", 10**4)  # it tells size 0
    with pytest.raises(OSError, match="it has more than 10 bytes"):
        read_regular("/proc/self/stat", 10)


@pytest.mark.parametrize(("size", "whole"), [(10, True), (11, False), (1000, False)])
def test_a_file_that_grows_while_it_is_read_keeps_to_the_limit(tmp_path, monkeypatch, size, whole):
    path = tmp_path / "a"
    path.write_bytes(b"x")

    def opened(*arguments):
        file = before(*arguments)
        told = os.fstat(file.fileno())
        path.write_bytes(b"x" * size)
        monkeypatch.setattr(files.os, "fstat", lambda handle: told)  # from before it grew
        return file

    before = files.open_regular
    monkeypatch.setattr(files, "open_regular", opened)
    if whole:
        assert read_regular(path, 10) == b"x" * size
    else:
        with pytest.raises(OSError, match="it has more than 10 bytes"):
            read_regular(path, 10)
