"""A model of the user's own, that of docs/your-own-model.md: found, searched, saved, refused."""

import json
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
from tests.blocks import blocks
from tests.commands import hoplite

from hoplite import ConfigError, ModelFileError, TrainedModel, train
from hoplite.config import number_setting
from hoplite.models import MODELS, LinearModel, PolynomialSettings, model_config, register_model
from hoplite.models import settings as registry

PAGE = Path(__file__).parents[2] / "docs" / "your-own-model.md"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The page's class as a module of its own."""
    (code,) = [block.text for block in blocks(PAGE) if block.file == "my_models.py"]
    (tmp_path / "my_models.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield "my_models"
    sys.modules.pop("my_models", None)


def test_the_command_line_finds_it_with_its_options(module, tmp_path):
    command = ["cora", "--model", f"{module}:Damped", "--hops", 2, "--epochs", 3, "--seeds", 1]
    report = hoplite("train", *command, "--decay", 0.25, "--json", "--out", "m", cwd=tmp_path)
    assert report.returncode == 0, report.stderr
    config = json.loads(report.stdout)["config"]
    assert (config["model"], config["decay"]) == ("damped", 0.25)
    assert json.loads(Path("m/config.json").read_text())["module"] == f"{module}:Damped"
    assert "--decay" in hoplite("train", *command, "--help", cwd=tmp_path).stdout
    wrong = hoplite("train", *command, "--decay", 2, cwd=tmp_path)
    assert (wrong.returncode, "decay is 2.0; it must be" in wrong.stderr) == (2, True)
    idle = hoplite("train", "cora", "--model", "my_models:Damped", "--heads", 2, cwd=tmp_path)
    assert "heads is 2 but damped has no such setting; leave it out, or use gat" in idle.stderr
    with pytest.raises(ModelFileError, match="'damped', which is unknown; import my_models"):
        TrainedModel.load("m")
    assert module not in sys.modules  # a file does not choose what is imported
    __import__(module)
    assert TrainedModel.load("m").config == model_config("damped", hops=2, decay=0.25)


def test_an_installed_package_names_it(module, monkeypatch, graphs):
    entry = EntryPoint("damped", f"{module}:Damped", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry])
    with pytest.raises(ConfigError, match="Did you mean 'damped'"):
        model_config("damqed")
    graph = graphs()
    model = train(graph, "damped", hops=2, epochs=3, decay=0.0).model
    np.testing.assert_allclose(model.filter_coefficients_[1:], 0)
    with pytest.raises(ConfigError, match=r"decay is 0.3 but lgc has no such setting.*use damped"):
        train(graph, "lgc", decay=0.3)


def test_what_cannot_be_registered(module):
    with pytest.raises(ConfigError, match="is not a model class"):
        register_model(dict)
    for name, sentence in (
        ("lgc", "already used by hoplite.models.learned"),
        ("a b", "use letters"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            register_model(type("Taken", (LinearModel,), {"name": name}))
    for name, default in (("lr", 0.1), ("seeds", 1), ("hidden", 0.5), ("out", 1), ("size", 1)):
        body = {"__annotations__": {name: "float"}, name: number_setting(default, "Wrong.")}
        made = type(PolynomialSettings)("Wrong", (PolynomialSettings,), body)
        settings = dataclass(frozen=True)(made)
        with pytest.raises(ConfigError, match=f"other's setting '{name}'"):
            register_model(type("Other", (LinearModel,), {"name": "other", "Settings": settings}))
    body = {"__annotations__": {"q": "float"}, "q": 1.0}
    plain = dataclass(frozen=True)(type("Plain", (PolynomialSettings,), body))
    with pytest.raises(ConfigError, match="has a plain default"):
        register_model(type("Other", (LinearModel,), {"name": "other", "Settings": plain}))
    Path("broken.py").write_text("1 / 0")
    for address in (
        *("my_models:Nobody", "no_such_module:Model", "my_models:np", "my_models:", ":Model"),
        *(".my_models:Damped", "broken:Model", "my_models:Damped.name", "a b:Model"),
    ):
        with pytest.raises(ConfigError, match=r"cannot be imported|is not a model class"):
            model_config(address)


@pytest.mark.parametrize(
    ("base", "method", "replacement", "message"),
    [
        ("damped", "coefficients_vjp", lambda _, w, g: {"own": g.sum()}, "weight 'own'"),
        ("damped", "coefficients_vjp", lambda _, w, g: {}, "weight 'own'"),
        ("damped", "coefficients", lambda self, w: self.powers, r"shape \(3,\); .* \(4,\)"),
        ("lgc", "coefficients", lambda _, w: w["alpha"] ** 2, "weight 'alpha'"),
        ("damped", "coefficients_vjp", lambda _, w, g: g, "the type ndarray; .* dictionary"),
        ("damped", "initial_filter", lambda _, rng: [np.array(0.5)], "a dictionary of arrays"),
        ("damped", "initial_filter", lambda _, rng: {}, "a dictionary of arrays: KeyError"),
        ("lgc", "coefficients", lambda _, w: w["alpha"] * np.nan, "returns NaN or infinity"),
        ("lgc", "title", "LGC", "does not set `name` and inherits 'lgc'"),
    ],
)
def test_a_wrong_class_is_refused_before_training(
    module, base, method, replacement, message, graphs
):
    __import__(module)
    name = {} if method == "title" else {"name": "own"}
    own = type("Own", (MODELS[base],), {**name, method: replacement})
    with pytest.raises(ConfigError, match=message):
        train(graphs(), own, hops=3, epochs=1)


def test_bounds_of_a_trained_model_of_ones_own(tmp_path):
    (tmp_path / "ev.py").write_text(
        "from hoplite.models import LGC\n"
        "class Even(LGC):\n"
        "    name, facts, largest = 'even', LGC.facts, LGC.largest\n"
        "    def coefficients(self, weights):\n"
        "        return weights['alpha']\n"
    )
    own = ["--model", "ev:Even"]
    options = ["--hops", 2, "--epochs", 3, "--seeds", 1, "--out", "m"]
    trained = hoplite("train", "cora", *own, *options, cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    report = hoplite("bounds", "cora", "--trained", "m", *own, "--draws", 20, cwd=tmp_path)
    assert report.returncode == 0, report.stderr
    refused = hoplite("bounds", "cora", "--trained", "m", "--model", "lgc", cwd=tmp_path)
    assert refused.returncode == 2


def test_test_curves_need_the_test_labels(graphs):
    with pytest.raises(ConfigError, match="record_test needs"):
        train(graphs(), "sgc", record_test=True, test=False, epochs=1)
