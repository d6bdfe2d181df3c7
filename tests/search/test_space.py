"""Spaces: the built-in ones, what the tables of a file mean, and what is drawn from them."""

import math
import os

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.examples import examples

from hoplite.errors import ConfigError, GridError
from hoplite.models import MODELS, LabelModel, all_settings, split_options
from hoplite.nets.hlgc import GATES
from hoplite.search.space import parse_space, read_space

CITATION = ("citeseer", "cora", "pubmed")


# The built-in spaces


@pytest.mark.parametrize("dataset", CITATION)
def test_paper_sizes(dataset):
    space = read_space("paper")
    for model in MODELS:
        sizes = {"gcn": 4, "gat": 4, "stacked": 4 * 7}  # hidden units, hops, or both
        expected = 3 * 3 * 3 * sizes.get(model, 7)
        expected = 7 if issubclass(MODELS[model], LabelModel) else expected
        assert len(space.configurations(dataset, model)) == expected
        assert space.cut(dataset, model) is None


@pytest.mark.parametrize("dataset", CITATION)
def test_reduced_is_a_part_of_the_paper(dataset):
    paper, reduced = read_space("paper"), read_space("reduced")
    for model in MODELS:
        for gate in GATES if model == "hlgc" else [None]:
            fixed = {"gate": gate} if gate else {}
            whole = paper.configurations(dataset, model, fixed)
            part = reduced.configurations(dataset, model, fixed)
            for options in part:  # the start, and how often to validate, are ours to add
                own = {k: v for k, v in options.items() if k not in ("start", "validate_every")}
                assert own in whole
            assert (len(part) < len(whole)) == (reduced.cut(dataset, model, fixed) is not None)
    assert reduced.cut(dataset, "gat")
    assert reduced.cut(dataset, "hlgc")


@pytest.mark.parametrize("dataset", ["cora", "reddit", "other"])
def test_published_has_only_the_models_that_were_published(dataset):
    space = read_space("published")
    for model in MODELS:
        if model in ("s2gc", "ppr", "heat", "dgc"):
            assert len(space.configurations(dataset, model)) == 1
        else:
            with pytest.raises(GridError, match=f"s2gc, ppr, heat and dgc only, not for {model}"):
                space.configurations(dataset, model)


def test_a_file_may_extend_a_built_in_space():
    text = 'extends = "paper"\n[cora]\nlr = 0.3\n[cora.lgc]\nhops = 2\n[club]\nhops = [1, 2]\n'
    space, paper = parse_space(text), read_space("paper")
    whole = paper.configurations("cora", "sgc")
    assert len(space.configurations("cora", "sgc")) == len(whole) / 3
    assert {one["lr"] for one in space.configurations("cora", "sgc")} == {0.3}
    assert {one["hops"] for one in space.configurations("cora", "lgc")} == {2}
    assert space.configurations("pubmed", "lgc") == paper.configurations("pubmed", "lgc")
    assert space.configurations("club", "lgc") == [{"hops": 1}, {"hops": 2}]
    for wrong in ('"papers"', "3", "[]", "{a = 1}"):
        with pytest.raises(GridError, match=r"extends is .*; it must be one of paper, reduced"):
            parse_space(f"extends = {wrong}")


# Sections, order, fixed options

LAYERS = """
[any]
lr = [0.1]
[Cora]
cut = "dataset"
dropout = 0.25
lr = [0.2, 0.05]
hops = [2, 5]
hidden = [4, 8]
heads = [1, 2]
[Cora.hlgc]
hops = [5]
start = ["random", "lowpass"]
[Cora.hlgc.node]
cut = "gate"
lr = 0.01
"""


def test_inner_tables_replace_outer_ones():
    space = parse_space(LAYERS)
    assert space.configurations("cora", "hlgc", {"gate": "node"}) == [
        {"dropout": 0.25, "lr": 0.01, "hops": 5, "start": start, "gate": "node"}
        for start in ("random", "lowpass")
    ]
    gated = space.configurations("cora", "hlgc", {"gate": "class"})
    assert [c["lr"] for c in gated] == [0.2, 0.2, 0.05, 0.05]
    assert {c["gate"] for c in space.configurations("cora", "hlgc")} == {"node"}
    assert space.cut("cora", "hlgc", {"gate": "class"}) == space.cut("cora", "sgc") == "dataset"
    assert space.cut("cora", "hlgc", {"gate": "node"}) == "gate"
    assert space.cut("pubmed", "sgc") is None
    shared = {"sgc": ["hops"], "gcn": ["hidden"], "gat": ["hidden", "heads"]}
    for model, names in shared.items():  # those that a model ignores are left out
        found = space.configurations("cora", model)
        assert all(list(one) == ["dropout", "lr", *names] for one in found)


def test_listed_gates_bring_their_own_tables():
    space = parse_space(
        '[any]\nlr = [0.1, 0.2]\n[any.hlgc]\ngate = ["class", "node"]\n[any.hlgc.node]\nlr = 0.3'
    )
    expected = [(0.1, "class"), (0.2, "class"), (0.3, "node")]
    assert [(c["lr"], c["gate"]) for c in space.configurations("x", "hlgc")] == expected
    assert len(space.sample("x", "hlgc", 5, seed=0)) == 3


@pytest.mark.parametrize(
    ("dataset", "lr"),
    [("cora", 0.2), ("CORA", 0.2), ("some/folder/Cora", 0.2), ("x/cora.npz", 0.2), ("club", 0.1)],
)
def test_section_of_a_dataset(dataset, lr):
    assert parse_space(LAYERS).configurations(dataset, "sgc")[0]["lr"] == lr


def test_fixed_options_replace_the_files():
    space = parse_space("[any]\nlr = [0.1, 0.2]\nhops = {low = 2, high = 9}")
    assert space.configurations("x", "sgc", {"hops": 3, "dropout": 0.1}) == [
        {"lr": 0.1, "hops": 3, "dropout": 0.1},
        {"lr": 0.2, "hops": 3, "dropout": 0.1},
    ]
    for fixed, message in [
        ({"hop": 3}, "'hop' is not an option.*'hops'"),
        ({"model": "sgc"}, "'model' is"),
        ({"hops": [3]}, r"hops is \[3\]"),
    ]:
        with pytest.raises(ConfigError, match=message):
            space.sample("x", "sgc", 1, 0, fixed)
    with pytest.raises(ConfigError, match=r"gate is 'nod'.*'node'"):
        space.configurations("x", "hlgc", {"gate": "nod"})
    with pytest.raises(ConfigError, match=r"model is 'lcg'.*'lgc'"):
        space.configurations("x", "lcg")


# Random draws

OPEN = """
[any]
lr = {low = 1e-3, high = 1.0, log = true}
hops = {low = 2, high = 80, integer = true}
dropout = [0.0, 0.5]
"""


def test_draws_from_distributions():
    with pytest.raises(ConfigError, match=r"lr is a distribution.*samples="):
        parse_space(OPEN).configurations("x", "lgc")
    with pytest.raises(ConfigError, match="samples is"):
        parse_space(OPEN).sample("x", "lgc", 10**6, 0)
    numbers = ", ".join(str(i) for i in range(1, 401))
    large = parse_space(f"[any]\nhops = [{numbers}]\nepochs = [{numbers}]")
    with pytest.raises(ConfigError, match=r"160,000 configurations.*samples="):
        large.configurations("x", "sgc")
    assert len(large.sample("x", "sgc", 20, seed=0)) == 20
    narrow = parse_space("[any]\nlr = {low = 1.0, high = 1.0000000000000002}")
    assert {c["lr"] for c in narrow.sample("x", "sgc", 5, seed=0)} <= {1.0, 1.0000000000000002}
    drawn = parse_space(OPEN).sample("x", "lgc", 500, seed=1)
    assert len({tuple(c.items()) for c in drawn}) == len(drawn) == 500
    assert all(1e-3 <= c["lr"] <= 1 for c in drawn)
    assert {c["hops"] for c in drawn} <= set(range(2, 81))
    # half of the draws are below the geometric mean, 0.0316: 4 standard deviations are 45 of 500
    assert abs(sum(c["lr"] < 1e-3**0.5 for c in drawn) - 250) < 45
    assert drawn == parse_space(OPEN).sample("x", "lgc", 500, seed=1)
    assert drawn != parse_space(OPEN).sample("x", "lgc", 500, seed=2)


# Properties

numbers = st.floats(1e-6, 1e6, allow_nan=False)
grids = st.fixed_dictionaries(
    {},
    optional={
        "lr": st.lists(numbers, min_size=1, max_size=4, unique=True),
        "hops": st.lists(st.integers(0, 100), min_size=1, max_size=4, unique=True),
        "hidden": st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True),
        "bias": st.just([True, False]),
        "order": st.lists(st.sampled_from(["auto", "hops-first"]), min_size=1, unique=True),
    },
)


def as_toml(grid):
    lines = [f"{name} = {values!r}" for name, values in grid.items()]
    return "\n".join(["[any]", *lines]).replace("True", "true").replace("False", "false")


@given(grids, st.sampled_from(["sgc", "lgc", "gcn"]), st.integers(1, 40), st.integers(0, 9))
@examples(60)
def test_products_and_samples(grid, model, count, seed):
    space = parse_space(as_toml(grid))
    whole = space.configurations("x", model)
    used = set(grid) - ({"hops", "bias", "order"} if model == "gcn" else {"hidden"})
    assert len(whole) == math.prod(len(grid[name]) for name in used)
    assert all(set(options) == used for options in whole)
    keys = [tuple(options.items()) for options in whole]
    assert len(set(keys)) == len(keys)
    drawn = [tuple(options.items()) for options in space.sample("x", model, count, seed)]
    assert len(set(drawn)) == len(drawn) == min(count, len(whole))
    assert set(drawn) <= set(keys)
    assert space.sample("x", model, count, seed) == [dict(options) for options in drawn]


def test_screens_are_the_innermost_word() -> None:
    space = parse_space(
        "[any]\nhops = 2\nscreen = 9\n[any.hlgc]\nscreen = 5\n[any.hlgc.node]\nscreen = 2\n"
        '[x]\nhops = 2\n[x.hlgc]\ngate = ["class", "node"]\n[x.hlgc.node]\nscreen = 3'
    )
    assert space.screen("any", "lgc") == 9
    assert space.screen("any", "hlgc", {"gate": "class"}) == 5
    assert space.screen("any", "hlgc") == 2
    assert space.screen("x", "lgc") is None
    assert all("screen" not in one for one in space.configurations("any", "lgc"))
    for wrong in ("0", "2.0", "true", '"4"', "[4]"):
        with pytest.raises(GridError, match=r"\[any\]: screen is .*; it must be"):
            parse_space(f"[any]\nscreen = {wrong}")


# Mistakes in files: each is named, and no text gives another error than ConfigError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[cora]\nlr = \n", "not valid TOML.*line 2"),
        ("[cora]\nhop = [2]", "'hop' is not an option.*Did you mean 'hops'"),
        ('[cora]\nmodel = ["lgc"]', "'model' is set for the whole search"),
        ("[cora]\nlr = []", "lr is an empty list"),
        ('[cora]\nlr = ["0.1"]', "lr is '0.1'; it must be a number"),
        ("[cora]\nhops = [2.0]", "hops is 2.0; it must be"),
        (f"[cora]\nhops = 0x{'f' * 5000}", "hops is a very long value"),
        (f"[cora]\nhops = {'9' * 5000}", "not valid TOML"),
        (f"[cora]\nlr = {'[' * 5000}", "not valid TOML"),
        (f"[cora]\nlr.low{'.x' * 5000} = 1\nlr.high = 2", "distribution of lr"),
        ("[cora.hlcg]\nlr = [0.1]", r"\[cora\] has an unknown table 'hlcg'.*Did you mean 'hlgc'"),
        ("[cora.lgc.node]\nlr = [0.1]", r"\[cora.lgc\] has an unknown table 'node'.*none"),
        (
            "[cora.hlgc.nod]\nlr = [0.1]",
            r"\[cora.hlgc\] has an unknown table 'nod'.*node, class, feature",
        ),
        ("lr = [0.1]", "'lr' is outside of a section"),
        ("lr = {low = 0.1, high = 1}", "'lr' is outside of a section"),
        ("[cora]\nlr = {low = 0.1}", "distribution of lr: .*`high`"),
        ("[cora]\nlr = {low = 1, high = 0.1}", "low must be smaller"),
        ("[cora]\nlr = {low = 0, high = 0.1, log = true}", "larger than 0"),
        ("[cora]\nhops = {low = 1.5, high = 5}", "low and high must be whole"),
        ("[cora]\nbias = {low = 0, high = 1}", "not a numeric option; list its values"),
    ],
    ids=lambda value: value[:40],
)
def test_mistakes_are_named(tmp_path, text, message):
    path = tmp_path / "space.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message) as caught:
        read_space(path)
    assert str(path) in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    for source, message in [
        ("papr", "'papr', which does not exist.*Did you mean 'paper'"),
        (tmp_path, "is a folder"),
        ("/dev/zero", "not a regular file"),
        (pipe, "not a regular file"),
        ("x" * 5000, "does not exist"),
        ("a\0b", "does not exist"),
        ("", "is a folder"),
        (3, "grid has type int"),
    ]:
        with pytest.raises(ConfigError, match=message):
            read_space(source)
    (tmp_path / "mark.toml").write_bytes(b"\xef\xbb\xbf[any]\r\nlr = [0.1]\r\n")
    assert read_space(tmp_path / "mark.toml").configurations("x", "sgc") == [{"lr": 0.1}]
    (tmp_path / "latin.toml").write_bytes(b"note = '\xe9'")
    with pytest.raises(ConfigError, match="UTF-8"):
        read_space(tmp_path / "latin.toml")
    (tmp_path / "loop.toml").symlink_to("loop.toml")
    with pytest.raises(GridError, match="symbolic links"):  # a bad file, not a wrong name
        read_space(tmp_path / "loop.toml")


def test_options_themselves_are_a_space():
    """As the same below [any] of a file, and with the same errors."""
    given = {"hops": (2, 5), "lr": np.array([0.2, 0.1]), "dropout": [0.0], "weight_decay": 5e-4}
    text = "[any]\nhops = [2, 5]\nlr = [0.2, 0.1]\ndropout = [0.0]\nweight_decay = 5e-4\n"
    for model in ("sgc", "gcn"):
        found = read_space(given).configurations("any graph", model)
        assert found == parse_space(text).configurations("any graph", model)
    for wrong, message in [({"hopps": [2]}, "hopps"), ({"hops": []}, "empty"), ({"lr": "x"}, "lr")]:
        with pytest.raises(ConfigError, match=message):
            read_space(wrong)


marks = ["[", "]", "[[", "{", "}", "=", ",", ".", '"', "'", "#", "-", "\n", " "]
values = ["true", "nan", "1e400", "0xff", "7", "0.5", "[2, 5]", "[]", "'auto'", "1979-05-27"]
values += ["{low = 1, high = 3}", "{low = 0.1, high = 0.9, log = true}", "{}", "'node'"]
keys = ["note", "cut", "low", *MODELS, *GATES, *all_settings()]
words = st.sampled_from([*marks, *values, *keys])
headers = st.lists(st.sampled_from(["cora", "any", *MODELS, *GATES]), min_size=1, max_size=3)
lines = st.one_of(
    headers.map(lambda names: f"[{'.'.join(names)}]"),
    st.tuples(st.sampled_from(keys), st.sampled_from(values)).map(" = ".join),
)


@given(
    st.one_of(
        st.text(),
        st.lists(words, max_size=40).map("".join),
        st.lists(lines, max_size=8).map(lambda some: "\n".join(["[any]", *some])),
    )
)
@example("[cora]\n[cora.lgc]\nlr = {low = -1e308, high = 1e308}")
@examples(500)
def test_any_text_is_a_space_or_a_config_error(text):
    try:
        space = parse_space(text)
    except ConfigError:
        return
    for dataset in space.sections:
        for model in ("lgc", "hlgc", "gat"):
            try:
                drawn = space.sample(dataset, model, 2, seed=0)
            except ConfigError:
                continue
            for options in drawn:
                split_options(model, options)
