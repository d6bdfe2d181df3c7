"""Markdown, rows for the terminal, and what is refused."""

import json
import os
import re
from pathlib import Path

import pytest

from hoplite.errors import HopliteError
from hoplite.lab import report
from hoplite.lab.report.findings import findings
from hoplite.lab.report.view import timing_table
from hoplite.lab.results import as_results, load_results, write_results

SECTIONS = ("accuracy", "timing", "curves", "coefficients", "spectrum", "comparison")
NAN, INFINITE = float("nan"), float("inf")


def markdown(results):
    return report.markdown(as_results(results))


def page(results):
    return report.page(as_results(results))


def terminal_tables(results):
    return report.terminal_tables(as_results(results))


def columns(line):
    """The cells of a Markdown row; an escaped bar does not separate."""
    return re.split(r"(?<!\\)\|", line.strip())[1:-1]


def test_markdown_has_everything(results, tmp_path):
    report.write_markdown(as_results(results), tmp_path / "RESULTS.md", notes="By **hand**.")
    text = (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    assert text.startswith("# Results\n\nWritten by `hoplite reproduce --out results` on 2026")
    assert "17 of 18" in text
    assert "| LGC | **72.1 ± 0.39** (72.2 ± 0.33; \u22120.1) |" in text
    assert "**SGC on Pubmed: \u22121.7 points**" in text
    assert "### Notes\n\nBy **hand**." in text
    assert "hLGC, feature gate on Citeseer, Cora and Pubmed: k above 20" in text
    assert "paper 10.1, k = 20: 4.8x faster" in text
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


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("empty", [None, []])
def test_a_partial_run_says_what_is_missing(results, section, empty):
    results[section] = empty
    assert "## Not in this run" in markdown(results)
    terminal_tables(results)


def test_the_claim_is_answered_from_the_intervals_of_all_pairs(results):
    text = markdown(results)
    answer = (
        '"hLGC is the best model", tested against LGC on random splits, holds on Citeseer and Cora '
        "alone: class gate above LGC on Citeseer; class gate above LGC on Cora; no gate above LGC, "
        "class and feature gates below on Pubmed (intervals of 95 % for 9 pairs at once)."
    )
    assert text.count(answer) == 2  # above all, and in its section
    assert "+0.20 (+0.00 to +0.40; all: \N{MINUS SIGN}0.10 to +0.50)" in text
    assert "`hoplite reproduce --comparison --out results`" in text
    assert "not of new graphs" in text
    assert answer.replace('"', "&#34;") in page(results)
    for entry in results["comparison"]:
        if entry["gate"] == "class":
            entry["difference"] |= {"low_all": -0.001, "high_all": 0.009}
    assert "on random splits, is not borne out: no gate above LGC on Citeseer" in markdown(results)
    for entry in results["comparison"]:
        if entry["gate"] == "node":
            entry["difference"] |= {"low_all": 0.001}
    assert "on random splits, holds: node gate above LGC on Citeseer" in markdown(results)


def test_quick_says_that_it_searched_nothing(results):
    assert "Quick run, no search" in markdown(results | {"kind": "quick"})
    assert "Quick run" not in markdown(results)
    assert "no search" in terminal_tables(results | {"kind": "quick"})[0][0]
    assert "no search" not in terminal_tables(results)[0][0]


def test_quick_never_claims_a_choice_on_the_validation_set(results):
    results["accuracy"] = [e for e in results["accuracy"] if e["protocol"] == "validation"]
    results |= {"kind": "quick", "comparison": []}
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
    ("before", "others", "told"),
    [(1.0, 0.1, False), (0.0, 0.11, "11 %"), (0.1, None, False), (0.5, None, "50 %")],
)
def test_a_time_of_a_busy_machine_is_compared_with_nothing(results, before, others, told):
    """What was measured meanwhile counts; 0.1.0 knew only the moment before the run."""
    results["provenance"]["machine"]["busy_before"] = before
    for entry in results["timing"]:
        entry["others"] = others if entry["dataset"] == "cora" else 0.0
    table = timing_table(as_results(results))
    cora = table.datasets.index("cora")
    for row in table.rows:
        for index, cell in enumerate(row.cells):
            quiet = index != cora or not told
            assert bool(cell.faster) == (quiet and cell.paper is not None)
            assert all(bool(faster) == quiet for _, faster in cell.peers)
    line = f"The machine was up to {told} busy with other work, so the times on Cora may"
    texts = (markdown(results), page(results))
    for text, start in zip(texts, ("## Milliseconds", 'id="time"'), strict=True):
        assert ("busy with other work" in text) == bool(told)
        assert not told or text.index(start) < text.index(line) < text.index("12x faster")
    gcn = next(row for row in terminal_tables(results)[-1][2] if row[0] == "GCN")
    assert gcn[1 + cora] == ("4.00 (paper 20.2)" if told else "4.00 (paper 20.2, 5.0x faster)")
    speed = next(line for line in findings(as_results(results)) if "V100" in line)
    assert f" of {16 if told else 24} cases" in speed


def test_a_busy_run_makes_no_claim(results):
    for entry in results["timing"]:
        entry["others"] = 1.0
    assert not any("V100" in line for line in findings(as_results(results)))
    texts = [markdown(results), page(results).split('id="specs"')[0], str(terminal_tables(results))]
    assert not any("faster" in text or "slower" in text for text in texts)
    assert all("42.0" in text for text in texts[:2])  # the times are still there


def test_peers_stand_in_the_cell_strongest_first(results):
    text = markdown(results)
    assert "<br>plain torch 42.0: 10x faster<br>PyTorch Geometric, GCNConv 84.0: 21x" in text


def test_terminal(results):
    validation, biased, splits, times = terminal_tables(results)
    assert splits[2][1][0] == "hLGC, node gate"
    assert splits[2][1][1].endswith(" (+0.20, \N{MINUS SIGN}0.10 to +0.50)")
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
        ({"format": 2}, "they have format 2, this version reads 1"),
        ({"accuracy": {}}, r"Expected `array`, got `object` - at `\$.accuracy`"),
        ({"timing": [1]}, r"Expected `object`, got `int` - at `\$.timing\[0\]`"),
        ({"timing": [{"dataset": "cora", "model": "lgc"}]}, "missing required field `ms_median`"),
        ({"curves": [{}]}, "missing required field `dataset`"),
        ({"provenance": {"machine": 3}}, r"got `int` - at `\$.provenance.machine`"),
        ({"provenance": {"machine": {"versions": []}}}, r"\$.provenance.machine.versions"),
        ({"provenance": []}, r"\$.provenance"),
        ({"provenance": {"machine": {"busy_before": "x"}}}, r"\$.provenance.machine.busy_before"),
        ({"command": 3}, r"\$.command"),
        ({"kind": ["full"]}, r"\$.kind"),
        (
            {"coefficients": [{"dataset": "c", "model": "l", "mean": ["x"], "std": [1]}]},
            r"Expected `float \| null`, got `str` - at `\$.coefficients\[0\].mean\[0\]`",
        ),
        (
            {"spectrum": [{"dataset": "c", "points": [1], "responses": [{}]}]},
            r"missing required field `model` - at `\$.spectrum\[0\].responses\[0\]`",
        ),
    ],
)
def test_what_is_not_a_results_file_is_refused(results, change, message):
    with pytest.raises(ValueError, match=message):
        as_results(results | change)


@pytest.mark.parametrize(
    ("section", "change"),
    [
        ("accuracy", {"test_mean": NAN}),
        ("accuracy", {"test_std": INFINITE}),
        ("accuracy", {"test_mean": 1e308}),
        ("accuracy", {"test_mean": 10**400}),
        ("accuracy", {"test_mean": True}),
        ("accuracy", {"test_mean": None}),
        ("accuracy", {"val_mean": []}),
        ("accuracy", {"val_std": ""}),
        ("accuracy", {"minutes": -1}),
        ("accuracy", {"runs": 1.5}),
        ("accuracy", {"runs": "9"}),
        ("accuracy", {"runs": 10**400}),
        ("accuracy", {"seeds": ["0"]}),
        ("accuracy", {"seeds": [None]}),
        ("accuracy", {"seeds": 0}),
        ("accuracy", {"gate": []}),
        ("accuracy", {"config": []}),
        ("accuracy", {"config": None}),
        ("timing", {"ms_median": -1.0}),
        ("timing", {"ms_low": "x"}),
        ("timing", {"threads": [1]}),
        ("timing", {"others": 1.1}),
        ("timing", {"peers": "x"}),
        ("timing", {"peers": [{}]}),
        ("timing", {"peers": [{"name": "x"}]}),
        ("timing", {"peers": [{"name": "x", "ms_median": "x"}]}),
        ("timing", {"peers": [{"name": "x", "ms_median": NAN}]}),
        ("curves", {"best_epoch": 10**400}),
        ("curves", {"train_loss": [10**400]}),
        ("coefficients", {"mean": 0}),
    ],
)
def test_what_could_not_be_shown_is_refused(results, section, change):
    results[section][0] |= change
    with pytest.raises(ValueError, match=rf"\$\.{section}\[0\]\.{next(iter(change))}"):
        as_results(results)


@pytest.mark.parametrize(
    ("section", "change"),
    [
        ("accuracy", {"val_mean": None, "val_std": None}),
        ("accuracy", {"config": {"lr": 10**400, "hops": [{}]}}),
        ("accuracy", {"seeds": [10**400]}),
        ("timing", {"threads": None, "others": None, "peers": [], "ms_low": None}),
        ("timing", {"ms_median": 1.7e308}),
        ("coefficients", {"mean": [1.7e308, -1e308], "std": [1e308, 1.0]}),
        ("curves", {"train_loss": [1.7e308], "val_loss": [1e299]}),
        ("spectrum", {"density": [1.7e308] * 121}),
    ],
)
def test_what_is_unusual_is_shown(results, section, change):
    results[section][0] |= change
    for show in (page, markdown, terminal_tables):
        assert show(results)


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
    with pytest.raises(ValueError, match="two results for validation, citeseer, sgc"):
        as_results(results)


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
@pytest.mark.parametrize("section", ["timing", "curves", "coefficients", "comparison"])
def test_settings_may_be_unknown(results, section, config):
    for entry in results[section]:
        entry["config"] = config
    for show in (page, markdown, terminal_tables):
        assert show(results)
    for entry in results[section]:
        del entry["config"]
    assert markdown(results)


def test_models_have_their_colours(results):
    html = page(results)
    for model in ("sgc", "egc", "lgc", "hlgc", "gcn", "gat"):
        assert html.count(f'class="swatch m-{model}"') >= 3  # two tables of accuracies, the times
        assert model in ("gcn", "gat", "sgc") or f'class="key m-{model} g-' in html


def test_load(results, tmp_path):
    with pytest.raises(HopliteError, match="hoplite reproduce"):
        load_results(tmp_path)
    (tmp_path / "results.json").write_text(json.dumps(results), encoding="utf-8")
    assert load_results(tmp_path) == as_results(results)
    (tmp_path / "results.json").write_text(json.dumps(results | {"seeds": "5"}), encoding="utf-8")
    with pytest.raises(HopliteError, match=r"results.json holds no results that can be shown: Exp"):
        load_results(tmp_path)


def test_what_is_written_is_what_was_read(results, tmp_path):
    found = as_results(results)
    write_results(found, tmp_path)
    assert load_results(tmp_path) == found
    plain = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    for section in SECTIONS:
        assert plain[section] == results[section]


def test_results_of_the_repository_are_read():
    found = load_results(Path(__file__).parents[3] / "results")
    assert (found.kind, found.seeds) == ("full", 5)
    for protocol in ("validation", "test"):
        assert len({(entry.model, entry.dataset) for entry in found.of(protocol)}) == 18


def test_null_is_as_good_as_missing():
    """As version 0.1.0 took it; in a list it is a gap."""
    entry = {"protocol": "validation", "dataset": "cora", "model": "lgc", "config": {"x": None}}
    entry |= {"test_mean": 0.8, "test_std": 0.1, "seeds": None, "val": None, "test": [0.8, None]}
    found = as_results(
        {
            "format": 1,
            "accuracy": [entry],
            "provenance": {"machine": {"versions": None}},
            "coefficients": [
                {"dataset": "cora", "model": "lgc", "mean": [1], "std": [None], "seeds": None}
            ],
        }
    )
    (accuracy,) = found.accuracy
    assert (accuracy.seeds, accuracy.val, accuracy.test) == ([], [], [0.8, None])
    assert accuracy.config == {"x": None}
    assert (found.provenance.machine.versions, found.coefficients[0].std) == ({}, [None])
    with pytest.raises(ValueError, match="test_mean"):
        as_results({"format": 1, "accuracy": [entry | {"test_mean": None}]})
