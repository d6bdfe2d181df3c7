"""What commands write replaces nothing that they did not write, unless they are asked to."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
from pathlib import Path

import pytest
from tests.commands import hoplite

from hoplite.cli.outputs import check_new, digest, is_marked, mark, seal

MINE = "my own words, that nobody keeps twice\n"
PLACE = "räume & 'files'"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a model, a search and a small dataset in it."""
    folder = tmp_path_factory.mktemp("outputs") / PLACE
    (folder / "club").mkdir(parents=True)
    rows = [f"{i},{'ab'[i % 3 == 0]},{i % 7}" for i in range(60)]
    (folder / "club" / "nodes.csv").write_text("id,label,age\n" + "\n".join(rows) + "\n")
    edges = [f"{i},{(i * 7 + 3) % 55}" for i in range(55)]
    (folder / "club" / "edges.csv").write_text("source,target\n" + "\n".join(edges) + "\n")
    good("train", "club", "--epochs", "3", "--seeds", "1", "--out", "model", cwd=folder)
    return folder


def good(*words, **options):
    done = hoplite(*words, **options)
    assert done.returncode == 0, done.stderr
    return done


def refused(*words, told="is there already; replace it with --overwrite.", code=1, **options):
    done = hoplite(*words, **options)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert told in done.stderr
    return done.stderr


def unsealed(page):
    """Without what tells the rest of the page, which names --json."""
    return re.sub(rb'(content="[0-9a-f]{16})-[0-9a-f]{16}"', rb"\1", page)


EXPLAIN = ["explain", "model", "club", "--node", "3", "--no-flips"]
SEARCH = ["search", "club", "--workers", "1", "--seeds", "1", "--epochs", "3", "--samples", "2"]
WRITES = {
    "table of predict": ["predict", "model", "club", "--out", "labels é.parquet"],
    "export of search": [*SEARCH, "--out", "search", "--export", "runs.csv"],
}


@pytest.mark.parametrize("name", WRITES)
def test_a_file_of_mine_stays(place, name):
    words = WRITES[name]
    out = place / words[-1]
    out.unlink(missing_ok=True)
    out.write_text(MINE)
    link = place / f"link{out.suffix}"
    link.unlink(missing_ok=True)
    link.symlink_to(out.name)
    refused(*words, cwd=place)
    refused(*words[:-1], link.name, cwd=place)
    assert out.read_text() == MINE
    good(*words, "--overwrite", cwd=place)
    assert out.read_bytes() != MINE.encode()
    assert not [path for path in place.iterdir() if path.name.endswith(".tmp")]
    if words[0] != "predict":  # which always asks
        first = out.read_bytes()
        good(*words, "--json", cwd=place)  # the same command again
        assert unsealed(out.read_bytes())[:2000] == unsealed(first)[:2000]
    good(*words[:-1], link.name, "--overwrite", cwd=place)
    assert link.is_symlink()
    out.unlink()
    os.mkfifo(out)  # nobody reads it, and nobody waits for that
    refused(*words, cwd=place)
    out.unlink()


@pytest.mark.parametrize("more", [[], ["--overwrite"], ["--json"]])
def test_the_command_that_a_page_prints_works_as_printed(place, more):
    """From another folder too, and when the page was edited meanwhile."""
    (place / "elsewhere").mkdir(exist_ok=True)
    page = place / "again 'it'.html"
    page.unlink(missing_ok=True)
    words = ["explain", place / "model", place / "club", "--node", "3", "--no-flips"]
    good(*words, "--out", page, *more, cwd=place)
    found = re.search(
        r"To make this page again:</p>\s*<pre[^>]*><code>(.*?)</code>", page.read_text()
    )
    assert found is not None
    program, *told = shlex.split(html.unescape(found[1]))
    assert (program, told.count("--overwrite")) == ("hoplite", 1)
    page.write_text(page.read_text() + "<!-- edited -->")
    for folder in (place, place / "elsewhere"):
        good(*told, cwd=folder)
    assert "edited" not in page.read_text()


def test_of_several_pages_each_is_looked_at(place):
    (place / "many-2.html").write_text(MINE)
    words = [*EXPLAIN, "--node", "5", "--out", "many.html"]
    assert "many-2.html" in refused(*words, cwd=place)
    assert not (place / "many-1.html").exists()
    good(*words, "--overwrite", cwd=place)
    assert (place / "many-1.html").exists()


def test_a_changed_export_is_somebody_s(place):
    words = [*SEARCH, "--out", "changed", "--export", "changed.csv"]
    good(*words, cwd=place)
    good(*words, cwd=place)
    with (place / "changed.csv").open("a") as file:
        file.write("my,own,row\n")
    refused(*words, cwd=place)
    good(*words, "--overwrite", cwd=place)
    good(*words, cwd=place)
    told = json.loads((place / "changed" / "export.json").read_text())
    assert told["sha256"] == digest(place / "changed.csv")


@pytest.mark.parametrize("words", [EXPLAIN])
def test_where_nothing_can_be_written(place, words):
    ending = ".html"
    told = "cannot be a file there; give one in an existing folder."
    refused(*words, "--out", f"no such/x{ending}", told=told, code=2, cwd=place)
    (place / f"folder{ending}").mkdir(exist_ok=True)
    refused(*words, "--out", f"folder{ending}", told=told, code=2, cwd=place)
    refused(*words, "--out", "x.txt", told="it must be one of", code=2, cwd=place)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_not_writable(place, tmp_path):
    tmp_path.chmod(0o500)
    words = [*EXPLAIN, "--out", tmp_path / "x.html"]
    refused(*words, told="its folder is not writable", cwd=place)


def test_marks(tmp_path, monkeypatch):
    page = tmp_path / "page.html"
    monkeypatch.setattr("sys.argv", ["hoplite", "report", "runs"])
    assert not is_marked(page)
    monkeypatch.chdir(tmp_path)
    for head in ('<head>\n<meta name="hoplite" content="{}">\n', "# Table\n<!-- hoplite {} -->\n"):
        page.write_text(head.format(mark()))
        assert not is_marked(page)  # whoever was killed before that
        seal(page)
        assert is_marked(page)
        check_new(page, overwrite=False, own=is_marked)
        (tmp_path / "elsewhere").mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert not is_marked(page)
        monkeypatch.chdir(tmp_path)
        whole = page.read_bytes()
        for edited in (whole + b"mine", b"mine" + whole, whole.replace(b"a", b"b")):
            page.write_bytes(edited)
            assert not is_marked(page)
        page.write_bytes(whole)
        assert is_marked(page)
    page.write_text(f'<p>{"a" * 5000}<meta name="hoplite" content="{mark()}">')
    seal(page)
    assert not is_marked(page)  # it is not in the head
    assert mark(["a b"]) != mark(["a", "b"])
    check_new(tmp_path / "none", overwrite=False)
    (tmp_path / "dangling").symlink_to("nowhere")
    check_new(tmp_path / "dangling", overwrite=False)
    assert digest(Path("/dev/zero")) == ""
