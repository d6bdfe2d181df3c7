"""No bytes of a matrix reach SciPy's C++ code or the core unchecked, whatever somebody gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from hoplite.csr import as_csr, check_csr
from hoplite.errors import GraphError
from hoplite.graph import Graph

FORMATS = ("csr", "csc", "coo", "bsr", "dia", "lil", "dok")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a crash must not end the tests")
def test_damaged_matrices_are_taken_or_refused():
    script = Path(__file__).with_name("damaged_matrices.py")
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=600
    )
    found = json.loads(ended.stdout)
    assert found["bad"] == [], ended.stderr
    assert found["cases"] >= 800
    assert found["counts"]["well"] >= 150  # strides, types and unused room are no damage
    assert found["counts"]["refused"] >= 500


@pytest.mark.parametrize("form", ["lil", "dok"])
@pytest.mark.parametrize("place", [10**6, -1, 2**70, "x", None])
def test_formats_of_python_objects_are_refused_if_they_are_damaged(form, place):
    matrix = sp.csr_array(np.eye(3)).asformat(form)
    if form == "lil":
        matrix.rows[1] = [place]
    else:
        matrix._dict[place, 0] = 1.0
    with pytest.raises(GraphError, match="adjacency is damaged"):
        Graph(matrix, np.eye(3))


@examples(60)
@given(
    form=st.sampled_from(FORMATS),
    array=st.booleans(),
    rows=st.integers(0, 7),
    columns=st.integers(0, 7),
    dtype=st.sampled_from([np.float32, np.float64, np.int64, np.uint8, np.bool_]),
    seed=st.integers(0, 10_000),
)
def test_a_sound_matrix_of_any_format_is_itself(form, array, rows, columns, dtype, seed):
    rng = np.random.default_rng(seed)
    dense = (rng.integers(0, 200, (rows, columns)) * (rng.random((rows, columns)) < 0.5)).astype(
        dtype
    )
    matrix = getattr(sp, f"{form}_{'array' if array else 'matrix'}")(dense)
    found = as_csr(matrix, "it")
    assert found.format == "csr"
    assert found.shape == (rows, columns)
    np.testing.assert_array_equal(found.toarray(), dense)
    assert found.dtype == (dtype if dtype in (np.float32, np.float64, np.bool_) else np.float32)


def test_repeated_entries_are_added_in_numbers_that_hold_the_sum():
    places = (np.array([0, 0]), np.array([1, 1]))
    for dtype, total in ((np.uint8, 300), (np.int64, 300), (np.bool_, 1)):
        matrix = sp.coo_array((np.array([200, 100], dtype), places), shape=(2, 2))
        assert as_csr(matrix, "it").toarray()[0, 1] == total


def test_room_for_more_entries_at_the_end_is_left_out():
    matrix = sp.csr_array(np.eye(3))
    matrix.indices = np.concatenate([matrix.indices, [99, -5]]).astype(np.int32)
    matrix.data = np.concatenate([matrix.data, [np.nan, 7]])
    np.testing.assert_array_equal(as_csr(matrix, "it").toarray(), np.eye(3))


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint8, np.uint64, ">i4", ">u8"])
def test_every_kind_of_index_is_checked_at_both_ends(kind):
    values = np.ones(3)
    check_csr(np.array([0, 1, 3], kind), np.array([0, 4, 2], kind), values, (2, 5))
    for wrong in (5, 127) if np.dtype(kind).kind == "u" else (5, 127, -1, -128):
        with pytest.raises(ValueError, match="an index is out of range"):
            check_csr(np.array([0, 1, 3], kind), np.array([0, wrong, 2], kind), values, (2, 5))
    for pointers in ([1, 1, 3], [0, 1, 2], [0, 4, 3], [0, 3], [0, 1, 1, 3], []):
        with pytest.raises(ValueError, match="indptr"):
            check_csr(np.array(pointers, kind), np.array([0, 4, 2], kind), values, (2, 5))
