"""What reaches the terminal: no control characters, no mark-up, and text in any encoding."""

import io
import json
import sys
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.examples import examples

import hoplite
from hoplite.cli import console, main
from hoplite.formatting import printable
from hoplite.io.npz import write_npz

HOSTILE = [
    "\x1b]52;c;ZXZpbA==\x07",
    "\x1b]0;title\x07",
    "\x9b31mred",
    "a\rb\nc\td",
    "abc\u202edef\u2066",
    "line\u2028end",
    "[bold]x[/bold]",
    "[link=http://a.example]y[/link]",
    "[/]",
    ":bug:",
    "back\\",
    "\U000e0041",
    "no\ufeffbreak",
]


def command(monkeypatch, *words, encoding="utf-8"):
    """Exit code, standard output and error of ``hoplite WORDS`` in this process."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2)]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", streams[0])
        patch.setattr(sys, "stderr", streams[1])
        patch.setattr(sys, "argv", ["hoplite", *map(str, words)])
        patch.setattr("warnings.showwarning", None)
        patch.setattr("signal.signal", lambda number, handler: None)
        with pytest.raises(SystemExit) as end:
            main()
    texts = []
    for stream in streams:
        stream.flush()
        texts.append(stream.buffer.getvalue().decode(encoding))
    return end.value.code, *texts


def hidden(text):
    """The characters that could do something to a terminal, line breaks aside."""
    categories = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return {c for c in text if unicodedata.category(c) in categories} - {"\n", "\u200c", "\u200d"}


def quoted(text):
    return '"' + text.replace('"', '""') + '"'


@pytest.fixture
def tables(tmp_path):
    """A graph on disk whose every name is hostile, and the folder's own, too."""
    folder = tmp_path / "evil\x1b]0;t\x07[red]"
    folder.mkdir()
    rng = np.random.default_rng(0)
    classes = [HOSTILE[i] for i in (0, 2, 4, 6)]
    ids = [quoted(f"{i}{HOSTILE[i % len(HOSTILE)]}") for i in range(40)]
    lines = [f"id,label,{quoted('wide' + HOSTILE[0])},{quoted('town[bold]')}"]
    for i in range(40):
        number = f"{i % 4 + rng.random():.3f}"
        lines.append(",".join([ids[i], quoted(classes[i % 4]), number, quoted(HOSTILE[i % 4])]))
    edges = ["source,target", *[f"{ids[i]},{ids[(i + 4) % 40]}" for i in range(40)]]
    for name, rows in (("nodes.csv", lines), ("edges.csv", edges)):
        text = "\n".join(rows) + "\n"
        (folder / name).write_text(text, encoding="utf-8", newline="")
    return folder


@pytest.mark.filterwarnings("ignore::hoplite.errors.HopliteWarning")
def test_hostile_names_are_only_text(tables, tmp_path, monkeypatch):
    model, node = tmp_path / "model\x1b[2J", f"0{HOSTILE[0]}"
    table, page = tmp_path / "t\x9b1m.csv", tmp_path / "p\x1b]0;x.html"
    train = ["train", tables, "--model", "lgc", "--epochs", 40, "--lr", 1, "--hops", 1]
    train += ["--folds", 0, "--seeds", 1, "--out", model]
    orders = [
        (0, train),
        (1, train),  # again: an error that names the folder
        (0, ["predict", model, tables, "--out", table]),
        (0, ["explain", model, tables, "--node", node, "--out", page]),
        (1, ["explain", model, tables, "--node", "9\x1b]0;t\x07"]),
        (2, ["explain", model, tables, "--node", node, "--class", "\x1b[2J"]),
        (0, ["bounds", tables, "--draws", 5, "--hops", 1]),
        (1, ["train", "evil\x1b[2J"]),
        (2, ["train", tables, "--model", "\x1b[2J"]),
        (2, ["train", tables, "--seeds", "\x1b[2J\n"]),
        (2, ["\x1b[2J"]),
    ]
    for expected, words in orders:
        code, out, err = command(monkeypatch, *words)
        assert code == expected, (words, err)
        assert not hidden(out + err), words
        assert err.count("error:") == (code != 0)
    again = ["predict", model, tables, "--out", table, "--overwrite"]
    text = command(monkeypatch, *again)[1]
    assert r"\x1b]52;c;ZXZpbA==\x07" in text
    assert "[bold]x[/bold]" in text
    values = command(monkeypatch, *again, "--json")[1]
    assert set(json.loads(values)["predicted"]) <= {HOSTILE[i] for i in (0, 2, 4, 6)}
    assert values.isascii()


names = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp", "Lu", "So", "Mn"])),
    st.text(),
)


@given(st.lists(names, min_size=4, max_size=4), st.sampled_from(["utf-8", "latin-1", "ascii"]))
@examples(100)
def test_any_name_is_printed_as_text(texts, encoding):
    title, column, cell, line = texts
    streams = [
        io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="backslashreplace")
        for _ in range(2)
    ]
    out, err = streams
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "_out", Console(file=out, width=2000, force_terminal=False))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        patch.setattr(sys, "argv", ["hoplite"])
        console.print_table(title, [column, "x"], [[cell, "1"]])
        console.print_line(line)
        console.print_error(line)
        console.show_warning(line, hoplite.HopliteWarning)
    for stream in streams:
        stream.flush()
        assert not hidden(stream.buffer.getvalue().decode(encoding))
    if encoding == "utf-8":
        shown = "".join(out.buffer.getvalue().decode().split())
        assert all("".join(printable(text).split()) in shown for text in texts)


@pytest.mark.filterwarnings("ignore::hoplite.errors.HopliteWarning")
def test_file_names_that_are_not_unicode(tmp_path, monkeypatch):
    graph, model, page, table = (
        tmp_path / name for name in ("g\udcff.npz", "m\udcff", "p\udcff.html", "t\udcff.csv")
    )
    write_npz(graph, hoplite.load("cora"))
    for words in (
        ["train", graph, "--epochs", 2, "--hops", 1, "--seeds", 1, "--out", model],
        ["predict", model, graph, "--out", table],
        ["explain", model, graph, "--node", 3, "--no-flips", "--out", page],
    ):
        code, out, err = command(monkeypatch, *words)
        assert (code, err) == (0, "")
        assert r"\udcff" in out
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_closed_streams(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["hoplite", "datasets"])
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    sys.stdout.close()
    sys.stderr.close()


def test_json_has_no_nan(capsys):
    console.print_json({"a": [float("nan"), 1.0], "b": {"c": (float("-inf"), None)}})
    assert json.loads(capsys.readouterr().out) == {"a": [None, 1.0], "b": {"c": [None, None]}}
