"""Tables, findings and differences, from results that are known."""

from dataclasses import replace

import pytest

from hoplite.lab.report import findings as says
from hoplite.lab.report import view
from hoplite.lab.results import as_results


def typed(function):
    """The function for results as they are written: plain values, which a test can change."""
    return lambda results, *rest: function(as_results(results), *rest)


accuracy_table, timing_table = typed(view.accuracy_table), typed(view.timing_table)
cuts, differences, findings = typed(says.cuts), typed(says.differences), typed(says.findings)
headline, missing, outcome = typed(says.headline), typed(says.missing), typed(says.outcome)


def entry(results, protocol, dataset, model, gate=None):
    wanted = (protocol, dataset, model, gate)
    keys = ("protocol", "dataset", "model", "gate")
    return next(e for e in results["accuracy"] if tuple(e[k] for k in keys) == wanted)


def cell(results, dataset, model, gate=None):
    cells = accuracy_table(results, "validation").every_cell
    wanted = (dataset, model, gate)
    return next(c for c in cells if (c.entry.dataset, c.entry.model, c.entry.gate) == wanted)


@pytest.mark.parametrize(
    ("mean", "difference", "verdict"),
    [
        (0.8204, 0.0, "above"),
        (0.8196, 0.0, "above"),  # shown as 82.0
        (0.83, 1.0, "above"),
        (0.8104, -1.0, "near"),  # shown as 81.0, and 81.0 is within a point of 82.0
        (0.8094, -1.1, "below"),
    ],
)
def test_differences_are_those_of_the_figures_shown(results, mean, difference, verdict):
    entry(results, "validation", "cora", "lgc")["test_mean"] = mean
    found = cell(results, "cora", "lgc")
    assert found.difference == difference
    assert found.verdict == verdict


def test_the_protocols_do_not_mix(results):
    for protocol in ("validation", "test"):
        table = accuracy_table(results, protocol)
        assert {c.entry.protocol for c in table.every_cell} == {protocol}
        assert len(table.cells) == 18
        assert len(table.every_cell) == 24


def test_the_gate_is_chosen_by_validation_accuracy_alone(results):
    node = entry(results, "validation", "cora", "hlgc", "node")
    node["val_mean"], node["test_mean"] = 0.99, 0.5
    rows = [r for r in accuracy_table(results, "validation").rows if r.model == "hlgc"]
    assert [r.part for r in rows] == [False, True, True, True]
    assert [c.entry.gate for c in rows[0].cells] == ["class", "node", "class"]
    entry(results, "test", "cora", "hlgc", "feature")["test_mean"] = 0.9
    biased = [r for r in accuracy_table(results, "test").rows if r.model == "hlgc"]
    assert [c.entry.gate for c in biased[0].cells] == ["class", "feature", "class"]


def test_the_chosen_gate_is_named_and_two_stages_are_told(results):
    rows = accuracy_table(results, "validation").rows
    assert [c.gate for c in rows[-4].cells] == ["class gate"] * 3
    assert all(c.gate == "" for row in rows if row.part or row.model != "hlgc" for c in row.cells)
    found = rows[-1].cells[0].entry
    assert view.searched(found)[1] == "945 runs"
    assert view.searched(replace(found, runs=199))[1] == "199 runs in two stages"
    assert view.searched(replace(found, runs=199, configurations=None))[0] == "199 runs"


def test_other_names_come_after_the_papers(results):
    extra = entry(results, "validation", "cora", "lgc") | {"dataset": "club", "model": "mine"}
    results["accuracy"].append(extra)
    table = accuracy_table(results, "validation")
    assert table.datasets == ["citeseer", "cora", "pubmed", "club"]
    assert table.rows[-1].model == "mine"
    assert table.rows[-1].cells[-1].verdict == "new"
    assert headline(results).startswith("17 of 18")  # what the paper has not is not counted


def test_headline_and_findings(results):
    assert headline(results) == "17 of 18 accuracies within 1.0 point of the paper or above."
    text = " ".join(findings(results))
    assert "hLGC on Citeseer (72.3 %), Cora (82.2 %) and Pubmed (80.7 %)" in text
    assert "2 CPU threads" in text
    assert "15 of 24 cases" in text
    assert "Each side has its own setting (k or hidden units may differ)" in text
    assert "+0.6 points" in text


def test_facts_about_a_difference(results):
    found = differences(results, "validation")
    assert [c.entry.name for c, _ in found] == ["SGC on Pubmed"]
    text = " ".join(found[0][1])
    assert "0.39 here and 0.00 in the paper" in text
    assert "4.4 times" in text
    assert "learning rate = 0.2 is the largest value of the paper's grid" in text
    assert "k = 20" not in text


def test_edges_are_only_told_of_a_search(results):
    found = entry(results, "validation", "cora", "lgc")
    found["config"] |= {"hops": 80, "dropout": 0.0, "lr": 0.05}
    (sentence,) = says.edges(cell(results, "cora", "lgc").entry)
    assert sentence == "On the edge of the grid: k = 80 is the largest value of the paper's grid."
    found["grid"] = "quick"
    assert says.edges(cell(results, "cora", "lgc").entry) == []
    assert "given beforehand" in " ".join(says.facts(cell(results, "cora", "lgc")))
    gcn = entry(results, "validation", "cora", "gcn")
    gcn["config"] |= {"hops": 80, "dropout": 0.2, "lr": 0.05, "hidden": 24}
    (sentence,) = says.edges(cell(results, "cora", "gcn").entry)
    assert "hidden units = 24" in sentence
    assert "k =" not in sentence


def test_cuts_are_told_once(results):
    ((names, reason),) = cuts(results)
    assert names == "hLGC, feature gate on Citeseer, Cora and Pubmed"
    assert reason.startswith("k above 20")


def test_missing(results):
    assert missing(results) == []
    results["accuracy"] = [e for e in results["accuracy"] if e["protocol"] == "validation"]
    results["accuracy"].remove(entry(results, "validation", "pubmed", "gat"))
    del results["timing"]
    results["curves"] = None
    assert missing(results) == [
        "Accuracy, settings chosen on the validation set: GAT on Pubmed.",
        "Accuracy, settings chosen on the test set.",
        "Time per epoch.",
        "Loss curves.",
    ]
    assert missing(results | {"kind": "quick"})[:2] == [
        "Accuracy, settings chosen beforehand: GAT on Pubmed.",
        "Accuracy, settings chosen on the test set (biased): this needs the full run.",
    ]
    assert len(missing({"format": 1})) == 7
    assert "no accuracy" in headline({"format": 1})
    assert findings({"format": 1}) == []


def test_times(results):
    table = timing_table(results)
    assert table.datasets == ["citeseer", "cora", "pubmed"]
    assert [row.label for row in table.rows][-3:] == [
        "hLGC, class gate",
        "hLGC, node gate",
        "hLGC, feature gate",
    ]
    results["timing"] = results["timing"][:1]
    first = timing_table(results).rows[0]
    assert [c is not None for c in first.cells] == [True, False, False]


def test_one_seed_has_no_deviation(results):
    for one in results["accuracy"]:
        one |= {"seeds": [0], "test_std": 0.0, "val_std": 0.0}
    found = cell(results, "pubmed", "sgc")
    assert found.ours.std is None
    assert found.validation.std is None
    text = " ".join(says.facts(found))
    assert "One seed has no standard deviation; the paper's is 0.00." in text
    assert "root sum" not in text


def test_the_title_says_no_more_than_the_run(results):
    assert outcome(results) == "run again"  # 17 of 18
    entry(results, "validation", "pubmed", "sgc")["test_mean"] = 0.788
    assert outcome(results) == "reproduced"
    assert outcome(results | {"kind": "quick"}) == "checked"
    assert outcome(results | {"kind": None}) == "run again"
    results["accuracy"].remove(entry(results, "validation", "pubmed", "gat"))
    assert outcome(results) == "run again"  # not whole
    assert outcome({"format": 1, "kind": "full"}) == "run again"


def test_the_cost_of_the_searches_counts_each_once(results):
    def sentence():
        return next(line for line in findings(results) if line.startswith("Searches"))

    assert sentence() == (
        "Searches, each counted once: SGC, EGC and LGC (whole grids) 8,505 runs, 28.8 processor "
        "minutes; GAT, GCN and hLGC (some grids cut) 14,175 runs, 48 processor minutes."
    )
    entry(results, "validation", "cora", "lgc")["minutes"] = None
    assert "LGC (whole grids) 8,505 runs, time unknown;" in sentence()
    assert not any("Searches" in line for line in findings(results | {"kind": "quick"}))
