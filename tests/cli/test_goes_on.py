"""Commands that are stopped tell what to type, and what they tell goes on where they were."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from tests.commands import start

from hoplite import Graph, Split
from hoplite.io import write_npz
from hoplite.stopping import as_typed, goes_on

LONG = ["--epochs", "3000", "--patience", "3000"]
PLACE = "my 'süße' folder\t\N{GREEK SMALL LETTER ALPHA}"


def untidy_graph() -> Graph:
    rng, n = np.random.default_rng(0), 120
    order = rng.permutation(n)
    return Graph.from_edges(
        rng.integers(0, n - 5, (300, 2)),  # the last nodes are alone
        features=rng.standard_normal((n, 12), np.float32),
        labels=rng.choice(3, n, p=[0.7, 0.2, 0.1]),
        split=Split(order[:50], order[50:80], order[80:]),
    )


@pytest.mark.skipif(sys.platform != "linux", reason="it needs bash and process groups")
@pytest.mark.parametrize(
    ("words", "begun", "number"),
    [
        (
            ["search", "--workers", "1", "--seeds", "1", "--samples", "4", "--grid", "usual"],
            "search.sqlite",
            signal.SIGTERM,
        ),
        (
            ["train", "--model", "auto", "--trials", "6", "--seeds", "1", "--hops", "2"],
            "auto/search.sqlite",
            signal.SIGINT,
        ),
    ],
    ids=["search", "auto"],
)
def test_what_is_told_goes_on(tmp_path, words, begun, number):
    folder = tmp_path / PLACE
    folder.mkdir()
    write_npz(folder / "graph.npz", untidy_graph())
    out = folder / "out"
    command, *options = words
    given = [command, "graph.npz", *options, *LONG, "--out", "../" + PLACE + "/out"]
    process = start(*given, cwd=folder)
    deadline = time.monotonic() + 300
    while not list(out.glob(begun)):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.killpg(process.pid, number)
    text, errors = process.communicate()
    assert (process.returncode, text) == (128 + number, "")
    sentence, again, *rest = errors.splitlines()
    assert rest == []
    assert sentence.startswith("error: stopped by ")
    assert again.startswith("Again: hoplite ")
    assert again.isprintable()
    kept = sorted(path.relative_to(out) for path in out.rglob("*.sqlite"))
    assert kept
    told = again.removeprefix("Again: ")
    program = f'hoplite() {{ {shlex.quote(sys.executable)} -m hoplite "$@"; }}; '
    done = subprocess.run(
        ["bash", "-c", program + told], capture_output=True, text=True, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    assert all((out / path).exists() for path in kept)
    assert "../" + PLACE.replace("\t", "\\t") in done.stdout


def test_which_commands_go_on():
    for words, expected in {
        "search cora --out x": True,
        "propagate cora --hops 2 --out x": True,
        "reproduce --out x": True,
        "datasets --fetch reddit": True,
        "datasets": False,
        "train cora --out x": False,
        "train cora --model lgc --out x": False,
        "train cora --model auto": False,  # it keeps nothing
        "train cora --model auto --out x": True,
        "train cora --model=auto --out=x": True,
        "predict m cora --out x.csv": False,
        "bench --large": False,
    }.items():
        command, *rest = words.split()
        assert goes_on(command, rest) is expected, words


@pytest.mark.parametrize(
    "word", ["", "a b", "it's", "é", "a\nb", "\x1b[2J", "back\\slash\t'", "\udcff\n"]
)
def test_what_is_told_is_what_was_given(word):
    typed = as_typed(["printf", "%s", word])
    assert typed.isprintable()
    done = subprocess.run(["bash", "-c", os.fsencode(typed)], capture_output=True, check=True)
    assert done.stdout == os.fsencode(word)
