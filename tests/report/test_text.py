"""Markdown, rows for the terminal, and what is refused."""

import json
import re

import pytest

from hoplite.errors import HopliteError
from hoplite.report import load_results, markdown, terminal_tables, write_markdown


def columns(line):
    """The cells of a Markdown row; an escaped bar does not separate."""
    return re.split(r"(?<!\\)\|", line.strip())[1:-1]


def test_markdown_has_everything(results, tmp_path):
    write_markdown(results, tmp_path / "RESULTS.md", notes="By **hand**.")
    text = (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    assert text.startswith("# Results\n\nWritten by `hoplite reproduce --out results` on 2026")
    assert "17 of 18" in text
    assert "| LGC | **72.1 ± 0.39** (72.2 ± 0.33; \u22120.1) |" in text
    assert "**SGC on Pubmed: \u22121.7 points**" in text
    assert "### Notes\n\nBy **hand**." in text
    assert "hLGC, feature gate on Citeseer, Cora and Pubmed: k above 20" in text
    assert "paper 10.1, k = 20: 4.8x faster" in text
    assert "`hoplite train cora --model hlgc --hops 20 --lr 0.2 --gate node`" in text
    assert "Not in this run" not in text
    biased = text.index("## BIASED")
    assert text.index("### Notes") < biased < text.index("Biased: an upper bound")


def test_markdown_rows_are_as_long_as_their_header(hostile_results):
    text = markdown(hostile_results)
    lengths = []
    for line in text.splitlines():
        if line.startswith("|"):
            lengths.append(len(columns(line)))
            assert lengths[-1] == lengths[0], line
        else:
            lengths = []


def test_markdown_shows_hostile_text_as_text(hostile_results):
    text = markdown(hostile_results)
    outside_code = re.sub(r"(`+).*?\1", "", text)
    assert not re.search(r"<(?!br>)", outside_code)
    assert "&lt;script&gt;" in outside_code


@pytest.mark.parametrize("section", ["accuracy", "timing", "curves", "coefficients", "spectrum"])
@pytest.mark.parametrize("empty", [None, []])
def test_a_partial_run_says_what_is_missing(results, section, empty):
    results[section] = empty
    assert "## Not in this run" in markdown(results)
    terminal_tables(results)


def test_quick_says_that_it_searched_nothing(results):
    assert "Quick run, no search" in markdown(results | {"kind": "quick"})
    assert "Quick run" not in markdown(results)
    assert "no search" in terminal_tables(results | {"kind": "quick"})[0][0]
    assert "no search" not in terminal_tables(results)[0][0]


def test_terminal(results):
    validation, biased, times = terminal_tables(results)
    assert validation[1] == ["model", "Citeseer", "Cora", "Pubmed"]
    assert validation[2][4] == [
        "LGC",
        "72.1 ± 0.4 (paper 72.2, \u22120.1)",
        "82.0 ± 0.4 (paper 82.0, +0.0)",
        "80.5 ± 0.4 (paper 80.6, \u22120.1)",
    ]
    assert "BIASED" in biased[0]
    assert times[2][0][1] == "1.04 (paper 12.0, 12x faster)"
    for _, names, rows in (validation, biased, times):
        assert {len(row) for row in rows} == {len(names)}
    assert terminal_tables({"format": 1}) == []


def test_rows_without_a_result_are_left_out_of_the_terminal(results):
    results["accuracy"] = results["accuracy"][:1]
    ((_, _, rows), *_) = terminal_tables(results)
    assert [row[0] for row in rows] == ["SGC"]
    assert rows[0][2] == "\u2013"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format 2; this version reads 1"),
        ({"accuracy": {}}, "accuracy must be a list"),
        ({"timing": [1]}, "timing must be a list of objects"),
        ({"timing": [{"dataset": "cora", "model": "lgc"}]}, r"timing\[0\] has no ms_median"),
        ({"curves": [{}]}, "has no dataset and no model"),
        (
            {"coefficients": [{"dataset": "c", "model": "l", "mean": ["x"], "std": [1]}]},
            "mean must hold numbers",
        ),
        (
            {"spectrum": [{"dataset": "c", "points": [1], "responses": [{}]}]},
            r"spectrum\[0\].responses\[0\] has no model",
        ),
        ({"provenance": {"machine": 3}}, "must be objects"),
        ({"provenance": {"machine": {"versions": []}}}, None),
        ({"provenance": []}, None),
    ],
)
def test_what_is_not_a_results_file_is_refused(results, change, message):
    if message is None:
        terminal_tables(results | change)
        return
    with pytest.raises(HopliteError, match=message):
        terminal_tables(results | change)


def test_two_results_for_one_cell_are_refused(results):
    results["accuracy"].append(results["accuracy"][0])
    with pytest.raises(HopliteError, match="two results for validation, citeseer, sgc"):
        markdown(results)


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000, "NaN", '{"format": "1"}', "\udcff"])
def test_unreadable_files_give_one_sentence(tmp_path, text):
    (tmp_path / "results.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(HopliteError):
        load_results(tmp_path)


def test_load(results, tmp_path):
    with pytest.raises(HopliteError, match="hoplite reproduce"):
        load_results(tmp_path)
    (tmp_path / "results.json").write_text(json.dumps(results), encoding="utf-8")
    assert load_results(tmp_path) == results
