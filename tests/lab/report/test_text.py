"""Markdown, rows for the terminal, and what is refused."""

import json
import os
import re

import pytest

from hoplite.errors import HopliteError
from hoplite.lab.report import load_results, markdown, page, terminal_tables, write_markdown

NAN, INFINITE = float("nan"), float("inf")


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
    assert text.count("PyTorch Geometric's GCN, 16 hidden units, here") == 1
    assert text.count("against PyTorch Geometric's GCN: ") == 3
    assert "population standard deviation over the seeds" in text
    assert "| 189 configurations, 945 runs, 3.2 processor minutes |" in text
    assert "SGC, EGC and LGC (whole grids) 8,505 runs, 28.8 processor minutes" in text
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


def test_quick_never_claims_a_choice_on_the_validation_set(results):
    results["accuracy"] = [e for e in results["accuracy"] if e["protocol"] == "validation"]
    results |= {"kind": "quick"}
    for text in (markdown(results), page(results)):
        assert "hosen on the validation set" not in text
        assert "ettings chosen beforehand" in text
        assert "reproduced" not in text.split("/**\n* plotly.js")[0]
    assert "### Settings chosen beforehand" in markdown(results)
    assert "### Settings chosen on the validation set" in markdown(results | {"kind": "full"})


def test_one_seed_is_shown_without_a_deviation(results):
    for entry in results["accuracy"] + results["coefficients"]:
        entry["seeds"] = [3]
    text = markdown(results)
    assert "| LGC | **72.1** (72.2 ± 0.33; \u22120.1) |" in text
    assert "of one seed, which has no standard deviation" in text
    assert "0.39" not in text
    html = page(results).split('id="specs"')[0]
    assert "± 0.39" not in html
    assert "± 0.40" not in html.replace("80.6 ± 0.40", "")  # that one is the paper's
    assert "standard deviation over the seeds up to" not in html
    results["accuracy"][0]["seeds"] = [0, 1]
    assert "over the seeds (none where there is one seed)" in markdown(results)


@pytest.mark.parametrize(
    ("busy", "told"), [(None, False), (0.1, False), (0.11, "11 %"), (1.0, "100 %")]
)
def test_a_busy_machine_is_told_beside_the_times(results, busy, told):
    results["provenance"]["machine"]["busy_before"] = busy
    line = f"The machine was {told} busy with other work when the run began, so times may be"
    texts = (markdown(results), page(results))
    for text, start in zip(texts, ("## Milliseconds", 'id="time"'), strict=True):
        assert ("busy with other work" in text) == bool(told)
        assert not told or text.index(start) < text.index(line) < text.index("12x faster")


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
    assert times[2][-1] == ["PyTorch Geometric's GCN, 16 hidden units, here", *["42.0"] * 3]
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
        ({"provenance": {"machine": {"busy_before": "x"}}}, "busy_before must be a finite"),
        ({"command": "\ud800"}, r"'\\ud800', which has a lone surrogate"),
        ({"provenance": {"machine": {"versions": {"\udfff": 1}}}}, "lone surrogate"),
        ({"more": [[{"deep": 10**400}]]}, "whole number beyond all floats"),
    ],
)
def test_what_is_not_a_results_file_is_refused(results, change, message):
    if message is None:
        terminal_tables(results | change)
        return
    with pytest.raises(HopliteError, match=message):
        terminal_tables(results | change)


@pytest.mark.parametrize(
    ("section", "change", "message"),
    [
        ("accuracy", {"test_mean": NAN}, "test_mean must be a finite number from 0 to 1"),
        ("accuracy", {"test_std": INFINITE}, "test_std must be a finite number from 0 to 1"),
        ("accuracy", {"test_mean": 1e308}, "test_mean must be a finite number from 0 to 1"),
        ("accuracy", {"test_mean": 10**400}, "beyond all floats"),
        ("accuracy", {"test_mean": True}, "test_mean must be"),
        ("accuracy", {"val_mean": []}, "val_mean must be"),
        ("accuracy", {"val_std": ""}, "val_std must be"),
        ("accuracy", {"val_mean": None, "val_std": None}, None),
        ("accuracy", {"minutes": -1}, "minutes must be a finite number, 0 or above"),
        ("accuracy", {"runs": 1.5}, "runs must be a whole number"),
        ("accuracy", {"runs": "9"}, "runs must be a whole number"),
        ("accuracy", {"seeds": ["0"]}, "seeds must hold whole numbers"),
        ("accuracy", {"seeds": [None]}, "seeds must hold whole numbers"),
        ("accuracy", {"seeds": 0}, "seeds must be a list"),
        ("accuracy", {"gate": []}, "gate must be text or null"),
        ("accuracy", {"config": []}, "config must be an object"),
        ("accuracy", {"config": {"a": ["\ud800"]}}, "lone surrogate"),
        ("accuracy", {"model": "\udc00"}, "lone surrogate"),
        ("timing", {"ms_median": INFINITE}, "ms_median must be a finite number"),
        ("timing", {"ms_low": "x"}, "ms_low must be a finite number"),
        ("timing", {"threads": [1]}, "threads must be a whole number"),
        ("timing", {"threads": None, "peer": None, "ms_low": None}, None),
        ("timing", {"peer": "x"}, "peer must be null, or an object with a name"),
        ("timing", {"peer": {}}, "peer must be null, or an object with a name"),
        ("timing", {"peer": {"name": "x"}}, "peer.ms_median must be a finite number"),
        ("timing", {"peer": {"name": "x", "ms_median": "x"}}, "peer.ms_median must be"),
        ("timing", {"peer": {"name": "x", "ms_median": NAN}}, "peer.ms_median must be"),
        ("curves", {"best_epoch": 10**400}, "beyond all floats"),
        ("curves", {"train_loss": [10**400]}, "beyond all floats"),
        ("coefficients", {"mean": 0}, "mean must be a list"),
        ("coefficients", {"mean": [1.7e308, -1e308], "std": [1e308, 1.0]}, None),
        ("curves", {"train_loss": [1.7e308], "val_loss": [1e299]}, None),
        ("spectrum", {"density": [1.7e308] * 121}, None),
    ],
)
def test_what_could_not_be_shown_is_refused(results, section, change, message):
    results[section][0] |= change
    if message is None:
        assert page(results)
        assert markdown(results)
        return
    for show in (page, markdown, terminal_tables):
        with pytest.raises(HopliteError, match=message):
            show(results)


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999", '"\\ud800"'])
def test_literals_that_json_has_not_are_refused(results, tmp_path, literal):
    text = json.dumps(results).replace('"test_std": 0.0039', f'"test_std": {literal}')
    (tmp_path / "results.json").write_text(text, encoding="utf-8")
    with pytest.raises(
        HopliteError, match=r"results.json is not valid JSON: .* - |JSON: JSON is malformed"
    ):
        load_results(tmp_path)


def test_two_results_for_one_cell_are_refused(results):
    results["accuracy"].append(results["accuracy"][0])
    with pytest.raises(HopliteError, match="two results for validation, citeseer, sgc"):
        markdown(results)


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "[" * 100_000, '{"a":' * 100_000, "NaN", '{"format": "1"}', "\udcff", ""],
)
def test_unreadable_files_give_one_sentence(tmp_path, text):
    (tmp_path / "results.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(HopliteError):
        load_results(tmp_path)


@pytest.mark.parametrize("kind", ["pipe", "endless", "folder", "loop"])
def test_what_is_no_file_gives_one_sentence(tmp_path, kind):
    path = tmp_path / "results.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "endless" else path)
    with pytest.raises(HopliteError, match=r"cannot read .*results\.json: "):
        load_results(tmp_path)


@pytest.mark.parametrize("config", [None, {}, {"hops": None}, {"hops": [1], "hidden": "x"}])
@pytest.mark.parametrize("section", ["timing", "curves", "coefficients"])
def test_settings_may_be_unknown(results, section, config):
    for entry in results[section]:
        entry["config"] = config
    for show in (page, markdown, terminal_tables):
        assert show(results)
    for entry in results[section]:
        del entry["config"]
    assert markdown(results)


def test_load(results, tmp_path):
    with pytest.raises(HopliteError, match="hoplite reproduce"):
        load_results(tmp_path)
    (tmp_path / "results.json").write_text(json.dumps(results), encoding="utf-8")
    assert load_results(tmp_path) == results
