"""What reaches the terminal: no control characters, no mark-up, and text in any encoding."""

import io
import itertools
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
from hoplite.cli import console, main, search, train
from hoplite.io.npz import write_npz
from hoplite.printable import printable
from hoplite.tasks.base import Metric
from hoplite.training.results import Spread
from hoplite.training.shown import _spread as _told

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
        with pytest.raises(SystemExit) as end:
            main()
    texts = []
    for stream in streams:
        stream.flush()
        texts.append(stream.buffer.getvalue().decode(encoding))
    return end.value.code, *texts


def hidden(text):
    """The characters that could do something to a terminal, line breaks aside."""
    kinds = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return {c for c in text if unicodedata.category(c) in kinds} - {"\n", "\u200c", "\u200d"}


@pytest.fixture
def tables(tmp_path):
    """A graph on disk whose every name is hostile, and the folder's own, too."""
    folder = tmp_path / "evil\x1b]0;t\x07[red]"
    folder.mkdir()
    rng = np.random.default_rng(0)
    classes = [HOSTILE[i] for i in (0, 2, 4, 6)]

    def quoted(text):
        return '"' + text.replace('"', '""') + '"'

    lines = [f"id,label,{quoted('wide' + HOSTILE[0])},{quoted('town[bold]')}"]
    for i in range(40):
        town = HOSTILE[i % 4]
        lines.append(
            ",".join(
                [
                    quoted(f"{i}{HOSTILE[i % len(HOSTILE)]}"),
                    quoted(classes[i % 4]),
                    f"{i % 4 + rng.random():.3f}",
                    quoted(town),
                ]
            )
        )
    (folder / "nodes.csv").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
    edges = [
        ",".join(quoted(f"{j}{HOSTILE[j % len(HOSTILE)]}") for j in (i, (i + 4) % 40))
        for i in range(40)
    ]
    (folder / "edges.csv").write_text(
        "source,target\n" + "\n".join(edges) + "\n", encoding="utf-8", newline=""
    )
    return folder


@pytest.mark.filterwarnings("ignore::hoplite.errors.HopliteWarning")
def test_hostile_names_are_only_shown(tables, tmp_path, monkeypatch):
    model, node = tmp_path / "model\x1b[2J", f"0{HOSTILE[0]}"
    table, page = tmp_path / "t\x9b1m.csv", tmp_path / "p\x1b]0;x.html"
    train = ["train", tables, "--model", "lgc", "--epochs", 40, "--lr", 1, "--hops", 1]
    train += ["--seeds", 1]
    train += ["--out", model]
    orders = [
        train,
        train,  # again: an error that names the folder
        ["predict", model, tables, "--out", table],
        ["explain", model, tables, "--node", node, "--out", page],
        ["explain", model, tables, "--node", "9\x1b]0;t\x07"],
        ["explain", model, tables, "--node", node, "--class", "\x1b[2J"],
        ["bounds", tables, "--draws", 5, "--hops", 1],
        ["train", "evil\x1b[2J"],
        ["train", tables, "--model", "\x1b[2J"],
        ["train", tables, "--seeds", "\x1b[2J\n"],
        ["\x1b[2J"],
    ]
    codes = []
    for words in orders:
        code, out, err = command(monkeypatch, *words)
        codes.append(code)
        assert not hidden(out + err), words
        assert (code == 0) == (err == "" or "warning:" in err), (words, err)
        assert err.count("error:") == (code != 0)
    assert codes == [0, 1, 0, 0, 1, 2, 0, 1, 2, 2, 2]
    again = ["predict", model, tables, "--out", table, "--overwrite"]
    shown = command(monkeypatch, *again)[1]
    assert r"\x1b]52;c;ZXZpbA==\x07" in shown
    assert "[bold]x[/bold]" in shown
    values = command(monkeypatch, *again, "--json")[1]
    assert set(json.loads(values)["predicted"]) <= {HOSTILE[i] for i in (0, 2, 4, 6)}
    assert values.isascii()


@pytest.mark.parametrize(
    ("width", "encoding"), [(80, "utf-8"), (100, "utf-8"), (200, "utf-8"), (90, "ascii")]
)
def test_titles_and_deviations_do_not_break(monkeypatch, width, encoding):
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="hoplite")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(console, "_out", Console(file=out, width=width, force_terminal=False))
    title = "a title that is longer than its table, " + "and wider than the terminal " * 5
    console.print_table(title, ["label", "nodes"], [["a", "1"]])
    spread = [f"{40 + i}.4 ± 12.{i}" for i in range(4)]
    columns = ["seed", "val accuracy %", "test accuracy %", "balanced accuracy %"]
    columns += ["average precision %", "best epoch"]
    console.print_table("x", columns, [["7", *["68.4"] * 4, "3"], ["mean ± std", *spread, "of 3"]])
    console.print_table("", ["nothing", "at all"], [])
    out.flush()
    lines = out.buffer.getvalue().decode(encoding).splitlines()
    assert lines[0].rstrip() == title.rstrip()
    plus = "±" if encoding == "utf-8" else "+-"
    (line,) = [line for line in lines if "mean" in line]
    for cell in ["mean ± std", *spread]:
        assert f" {cell.replace('±', plus)} " in line
    for line in lines[1:]:
        assert len(line) <= width


def test_no_figure_is_minus_zero():
    """R2 of a baseline is often a little less than nothing."""
    figures = [
        Metric("r2").shown, train._decimals, search._decimals,
        lambda value: _told(Spread(value, 0.0), 1),
    ]  # fmt: skip
    for figure in figures:
        assert (figure(-0.0004), figure(-0.0006)) == ("0.000", "-0.001")
    assert search._spread(Metric("r2"), -0.0004, 0.0) == "0.000 ± 0.000"
    assert Metric("accuracy", percent=True).shown(-0.0004) == "0.0"


names = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp", "Lu", "So", "Mn"])),
    st.text(),
)


@given(st.lists(names, min_size=4, max_size=4), st.sampled_from(["utf-8", "latin-1", "ascii"]))
@examples(100)
def test_any_name_is_printed_as_text(texts, encoding):
    title, column, cell, line = texts
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="hoplite")
    err = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="hoplite")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "_out", Console(file=out, width=2000, force_terminal=False))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        patch.setattr(sys, "argv", ["hoplite"])
        console.print_table(title, [column, "x"], [[cell, "1"]])
        console.print_line(line)
        console.print_error(line)
        console.show_warning(line, hoplite.HopliteWarning)
    for stream in (out, err):
        stream.flush()
        assert not hidden(stream.buffer.getvalue().decode(encoding))
    shown = out.buffer.getvalue().decode(encoding)
    assert shown.endswith(printable(line).encode(encoding, "hoplite").decode(encoding) + "\n")
    if encoding == "utf-8":
        for text in (title, column, cell):
            assert "".join(printable(text).split()) in "".join(shown.split())


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.filterwarnings("ignore::hoplite.errors.HopliteWarning")
def test_output_in_any_encoding(tmp_path, monkeypatch, encoding):
    model = tmp_path / "modèle→"
    code, out, err = command(
        monkeypatch, "train", "cora", "--epochs", 2, "--hops", 1, "--seeds", 2, "--out", model,
        encoding=encoding,
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert ("mean ± std" if encoding != "ascii" else "mean +- std") in out
    assert ("─" in out) == (encoding == "utf-8")
    assert {len(line) for line in out.splitlines() if line[:1] in "|┃│"} != set()
    tables = itertools.groupby(out.splitlines(), lambda line: line[:1] in set("+|┏┃┡│└"))
    widths = [{len(line) for line in lines} for inside, lines in tables if inside]
    assert len(widths) == 3
    assert all(len(one) == 1 for one in widths)  # columns are as wide as they were planned
    code, out, err = command(monkeypatch, "explain", model, "cora", "--node", 3, encoding=encoding)
    assert (code, err) == (0, "")
    assert ("\u2212" in out) == (encoding == "utf-8")
    assert command(monkeypatch, "--help", encoding=encoding)[0] == 0
    code, _, err = command(monkeypatch, "train", "naïve→", encoding=encoding)
    assert code == 1
    assert err.startswith("error: ")


@pytest.mark.filterwarnings("ignore::hoplite.errors.HopliteWarning")
def test_file_names_that_are_no_text(tmp_path, monkeypatch):
    graph = tmp_path / "graph\udcff.npz"
    write_npz(graph, hoplite.load("cora"))
    model, page, table = (tmp_path / f"{name}\udcff" for name in ("m", "p.html", "t.csv"))
    page, table = (path.with_name(path.name[:-1].replace(".", "\udcff.")) for path in (page, table))
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
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    sys.stdout.close()
    sys.stderr.close()


def test_json_has_no_nan(capsys):
    console.print_json({"a": [float("nan"), 1.0], "b": {"c": (float("-inf"), None)}, "d": True})
    assert json.loads(capsys.readouterr().out) == {
        "a": [None, 1.0],
        "b": {"c": [None, None]},
        "d": True,
    }
