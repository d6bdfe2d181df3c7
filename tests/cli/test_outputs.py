"""Commands replace a file only with --overwrite, and never one of the dataset."""

from __future__ import annotations

import os

import pytest
from tests.commands import fail, succeed

EXISTS = "already exists; use --overwrite."
MINE = "my own words, that nobody keeps twice\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a model and a small dataset in it."""
    folder = tmp_path_factory.mktemp("outputs") / "räume & 'files'"
    (folder / "club").mkdir(parents=True)
    rows = [f"{i},{'ab'[i % 3 == 0]},{i % 7}" for i in range(60)]
    (folder / "club" / "nodes.csv").write_text("id,label,age\n" + "\n".join(rows) + "\n")
    edges = [f"{i},{(i * 7 + 3) % 55}" for i in range(55)]
    (folder / "club" / "edges.csv").write_text("source,target\n" + "\n".join(edges) + "\n")
    succeed("train", "club", "--epochs", "3", "--seeds", "1", "--out", "model", cwd=folder)
    return folder


EXPLAIN = ["explain", "model", "club", "--node", "3", "--no-flips"]
SEARCH = ["search", "club", "--workers", "1", "--seeds", "1", "--epochs", "3", "--samples", "2"]
WRITES = {
    "explain": [*EXPLAIN, "--out", "why it.html"],
    "predict": ["predict", "model", "club", "--out", "labels é.parquet"],
    "search": [*SEARCH, "--out", "search", "--export", "runs.csv"],
}


@pytest.mark.parametrize("name", WRITES)
def test_an_existing_file_stays(place, name):
    words = WRITES[name]
    out = place / words[-1]
    out.write_text(MINE)
    link = place / f"link{out.suffix}"
    link.symlink_to(out.name)
    assert EXISTS in fail(1, *words, cwd=place)
    assert EXISTS in fail(1, *words[:-1], link.name, cwd=place)
    assert out.read_text() == MINE
    succeed(*words, "--overwrite", cwd=place)
    assert out.read_bytes() != MINE.encode()
    assert not [path for path in place.iterdir() if path.name.endswith(".tmp")]
    succeed(*words[:-1], link.name, "--overwrite", cwd=place)
    assert link.is_symlink()
    link.unlink()
    out.unlink()
    os.mkfifo(out)  # nobody reads it, and nobody waits for that
    assert EXISTS in fail(1, *words, cwd=place)
    out.unlink()


def test_each_of_several_pages_is_checked(place):
    (place / "many-2.html").write_text(MINE)
    words = [*EXPLAIN, "--node", "5", "--out", "many.html"]
    assert f"many-2.html {EXISTS}" in fail(1, *words, cwd=place)
    assert not (place / "many-1.html").exists()
    succeed(*words, "--overwrite", cwd=place)
    assert (place / "many-1.html").exists()


def test_a_file_of_the_dataset_is_never_replaced(place):
    before = (place / "club" / "nodes.csv").read_bytes()
    for words in (
        [*WRITES["predict"][:-1], "club/nodes.csv"],
        [*WRITES["search"][:-1], "club/../club/nodes.csv"],
    ):
        assert "a file of club" in fail(2, *words, "--overwrite", cwd=place)
        assert (place / "club" / "nodes.csv").read_bytes() == before
    succeed(*WRITES["predict"][:-1], "club/labels.csv", cwd=place)
