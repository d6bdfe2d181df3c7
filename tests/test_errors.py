"""What an unknown name is told to be: a slip of the hand is mended, another word is not."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import hoplite
from hoplite import ConfigError
from hoplite.errors import _slips, nearest_hint
from hoplite.models import MODELS, find_model
from hoplite.models.settings import ARGUMENTS, all_settings
from hoplite.operators import OPERATORS
from hoplite.preparation import TableOptions

SETTINGS = [*all_settings()]
COLUMNS = ["account", "fraud", "amount", "opened", "Branch", "last_login", "state", "x", "payer"]


@pytest.mark.parametrize(
    ("value", "names", "meant"),
    [
        ("lcg", MODELS, "lgc"),
        ("sg", MODELS, "sgc"),
        ("gnc", MODELS, "gcn"),
        ("hop", SETTINGS, "hops"),
        ("epoch", SETTINGS, "epochs"),
        ("weightdecay", SETTINGS, "weight_decay"),
        ("weight-decay", SETTINGS, "weight_decay"),
        ("dorpout", SETTINGS, "dropout"),
        ("patients", SETTINGS, "patience"),
        ("optimiser", SETTINGS, "optimizer"),
        ("renormalised", OPERATORS, "renormalized"),
        ("adjacancy", OPERATORS, "adjacency"),
        ("laplace", OPERATORS, "laplacian"),
        ("fruad", COLUMNS, "fraud"),
        ("branch", COLUMNS, "Branch"),
        ("ammount", COLUMNS, "amount"),
        ("last-logn", COLUMNS, "last_login"),
        ("open", COLUMNS, "opened"),
        ("chebychev", ["monomial", "chebyshev"], "chebyshev"),
        ("citseer", ["cora", "citeseer", "pubmed"], "citeseer"),
    ],
)
def test_slips_are_mended(value: str, names: list[str], meant: str) -> None:
    assert nearest_hint(value, names) == f" Did you mean {meant!r}?"


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("source", COLUMNS),
        ("target", COLUMNS),
        ("date", COLUMNS),  # not state
        ("count", COLUMNS),  # not account, not amount
        ("y", COLUMNS),  # not x
        ("id", COLUMNS),
        ("label", COLUMNS),
        ("learning_rate", SETTINGS),
        ("transformer", MODELS),
        ("gin", ["sgc", "lgc"]),
        ("minmax", ["standard", "robust", "log", "none"]),
        ("amazon", ["cora", "citeseer", "pubmed", "reddit"]),
        ("", COLUMNS),
    ],
)
def test_other_words_are_not(value: str, names: list[str]) -> None:
    assert nearest_hint(value, names) == ""


def test_slips_are_counted_as_by_the_whole_table() -> None:
    """Against the plain recursion, without a limit; of words of few letters, all pairs."""

    def slow(a: str, b: str) -> int:
        if not a or not b:
            return len(a or b)
        ways = [slow(a[1:], b) + 1, slow(a, b[1:]) + 1, slow(a[1:], b[1:]) + (a[0] != b[0])]
        if len(a) > 1 < len(b) and a[:2] == b[:2][::-1]:
            ways.append(slow(a[2:], b[2:]) + 1)
        return min(ways)

    words = ["", "a", "ab", "ba", "abc", "acb", "cab", "bcda", "aabb", "dcab"]
    for a in words:
        for b in words:
            for most in (0, 1, 2, 9):
                assert min(_slips(a, b, most), most + 1) == min(slow(a, b), most + 1)


def test_arguments_are_suggested_as_well(tmp_path: Path) -> None:
    own = inspect.signature(hoplite.train).parameters
    assert {*ARGUMENTS} == {name for name, one in own.items() if one.kind is one.KEYWORD_ONLY}
    with pytest.raises(ConfigError, match=r"'progres' is not an option .* mean 'progress'"):
        hoplite.train("cora", "lgc", progres=True)
    for dataset in ("cora", tmp_path):
        with pytest.raises(
            ConfigError, match=r"'labels' is no option of tables; .* mean 'label'\?"
        ):
            hoplite.load(dataset, labels="fraud")
        with pytest.raises(ConfigError, match=r"'structual' is no option .* mean 'structural'\?"):
            hoplite.load(dataset, structual=3)
    assert {"label", "source"} < {*TableOptions.names()}


def test_strategies_are_suggested_for_models() -> None:
    with pytest.raises(ConfigError, match=r"hoplite\.auto\(graph\)\. Did you mean 'auto'\?"):
        find_model("atuo")


def test_names_that_nobody_types_are_not_compared():
    """Letter by letter, 50 texts of 20,000 letters would take hours."""
    texts = [f"{k}" + "a" * 20_000 for k in range(50)]
    assert nearest_hint("b" * 20_000, texts) == ""
    assert nearest_hint("cusotmer-" + "1" * 60, ["customer-" + "1" * 60]) != ""


def test_what_the_command_line_calls_otherwise() -> None:
    with pytest.raises(ConfigError, match=r"'split_seed' is .*; give seed= instead"):
        hoplite.load("cora", split_seed=1)
    with pytest.raises(ConfigError, match=r"class_weight is 'balance'; .* Did you mean 'balanced'"):
        hoplite.TrainingConfig(class_weight="balance")
