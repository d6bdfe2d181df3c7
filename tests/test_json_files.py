"""JSON files: what was written comes back, and nothing else is taken for it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from hoplite.files import open_regular, read_regular
from hoplite.json_files import parse_json, read_json, to_json, write_json


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


def test_keys_that_are_numbers_become_text():
    assert parse_json(to_json({"by_hop": {10: 1, 9: 2}}).encode(), dict) == {
        "by_hop": {"10": 1, "9": 2}
    }


def test_a_dataclass_comes_back(tmp_path):
    sizes = Sizes(3, 0.1, ("a", "ß"))
    write_json(tmp_path / "a.json", sizes)
    assert read_json(tmp_path / "a.json", Sizes) == sizes


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


def test_only_regular_files_of_a_limited_size_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", tmp_path):
        with pytest.raises(OSError, match="it is"):
            open_regular(path)
    (tmp_path / "five").write_bytes(b"12345")
    assert read_regular(tmp_path / "five", 5) == b"12345"
    with pytest.raises(OSError, match="at most 4"):
        read_regular(tmp_path / "five", 4)
    with pytest.raises(OSError, match="more than 10"):
        read_regular("/proc/self/status", 10)  # which tells size 0
