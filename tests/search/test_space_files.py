"""Mistakes in space files: each is named, and no text gives another error than ConfigError."""

import os

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.examples import examples

from hoplite.errors import ConfigError
from hoplite.models import MODELS, all_settings, split_options
from hoplite.nets.hlgc import GATES
from hoplite.search.space import parse_space, read_space


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[cora]\nlr = \n", "not valid TOML.*line 2"),
        ("[cora]\nhop = [2]", "'hop' is not an option.*Did you mean 'hops'"),
        ('[cora]\nmodel = ["lgc"]', "'model' is chosen for the whole search"),
        ("[cora]\nlr = []", "lr is an empty list"),
        ('[cora]\nlr = ["0.1"]', "lr is '0.1'; it must be a number"),
        ("[cora]\nlr = nan", "lr is nan; it must be a number"),
        ("[cora]\nlr = 1979-05-27", "lr is datetime"),
        ("[cora]\nhops = [2.0]", "hops is 2.0; it must be a whole number"),
        (f"[cora]\nhops = 0x{'f' * 5000}", "hops is a very long value"),
        (f"[cora]\nhops = {'9' * 5000}", "not valid TOML"),
        (f"[cora]\nlr = {'[' * 5000}", "not valid TOML"),
        (f"[cora]\nlr.low{'.x' * 5000} = 1\nlr.high = 2", "distribution of lr"),
        ("[cora]\nbias = 1", "bias is 1; it must be true or false"),
        ("[cora]\noperator = 3", "operator is 3; it must be a text"),
        ("[cora.hlcg]\nlr = [0.1]", r"\[cora\] has a table 'hlcg'.*Did you mean 'hlgc'"),
        ("[cora.lgc.node]\nlr = [0.1]", r"\[cora.lgc\] has a table 'node'.*none"),
        ("[cora.hlgc.nod]\nlr = [0.1]", r"\[cora.hlgc\] has a table 'nod'.*node, class, feature"),
        ("lr = [0.1]", "'lr' is outside of a section"),
        ("lr = {low = 0.1, high = 1}", "'lr' is outside of a section"),
        ("[[cora]]\nlr = [0.1]", "'cora' is outside of a section"),
        ("[cora.gcn]\ncut = true", r"\[cora.gcn\]: cut is True; it must be a text"),
        ("[cora]\nlr = {low = 0.1}", "distribution of lr: .*`high`"),
        ("[cora]\nlr = {low = 0.1, hi = 1}", "distribution of lr: .*`hi`"),
        ("[cora]\nlr = {low = 1, high = 0.1}", "low must be smaller"),
        ("[cora]\nlr = {low = 0, high = 0.1, log = true}", "larger than 0"),
        ("[cora]\nlr = {low = 0.1, high = 1, log = 1}", "distribution of lr: Expected `bool`"),
        ("[cora]\nhops = {low = 1.5, high = 5}", "low and high must be whole"),
        ("[cora]\nbias = {low = 0, high = 1}", "not a number; list its values"),
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
        ("papr", "'papr' cannot be read.*Did you mean 'paper'"),
        (tmp_path, "is a folder"),
        ("/dev/zero", "not a regular file"),
        (pipe, "not a regular file"),
        ("x" * 5000, "cannot be read"),
        ("a\0b", "cannot be read"),
        ("", "is a folder"),
        (3, "space is a int"),
    ]:
        with pytest.raises(ConfigError, match=message):
            read_space(source)
    (tmp_path / "mark.toml").write_bytes(b"\xef\xbb\xbf[any]\r\nlr = [0.1]\r\n")
    assert read_space(tmp_path / "mark.toml").configurations("x", "sgc") == [{"lr": 0.1}]
    (tmp_path / "latin.toml").write_bytes(b"note = '\xe9'")
    with pytest.raises(ConfigError, match="UTF-8"):
        read_space(tmp_path / "latin.toml")


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


def test_long_lists_and_long_files(tmp_path):
    path = tmp_path / "grid.toml"
    values = [1 + i / 10_000 for i in range(9_000)]
    path.write_text(f"[any]\nlr = {[*values]}")
    assert len(read_space(path).configurations("x", "sgc")) == 9_000
    path.write_text(f"[any]\nlr = {[*values, 1.0001]}")  # one twice
    assert len(read_space(path).configurations("x", "sgc")) == 9_000
    path.write_text(f"[any{'.a' * 100_000}]\nlr = 1")
    with pytest.raises(ConfigError, match="at most 131,072 are read"):
        read_space(path)
