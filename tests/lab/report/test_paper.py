"""The paper's figures, as data."""

import pytest

from hoplite.lab import paper


@pytest.mark.parametrize("protocol", paper.PROTOCOLS)
def test_accuracy_is_complete(protocol):
    table = paper.figures()["accuracy"][protocol]
    assert list(table) == list(paper.MODELS)
    for model, row in table.items():
        assert list(row) == [*paper.DATASETS, "reddit"]
        for dataset, cell in row.items():
            if (model, dataset) == ("gat", "reddit"):
                assert cell == "OOM"
                assert paper.accuracy(protocol, model, dataset) is None
            else:
                mean, std = cell
                assert 60 < mean < 100
                assert 0 <= std <= 1.1


def test_choosing_on_the_test_set_is_never_worse():
    for model in paper.MODELS:
        for dataset in paper.DATASETS:
            biased, fair = (paper.accuracy(p, model, dataset) for p in ("test", "validation"))
            assert biased is not None
            assert fair is not None
            assert biased.mean >= fair.mean


def test_times_have_the_setting_they_belong_to():
    for model in paper.MODELS:
        for dataset in paper.DATASETS:
            time = paper.epoch_time(model, dataset)
            assert time is not None
            assert time.ms > time.std > 0
            (name, value) = next(iter(time.setting.items()))
            assert value in paper.grid(dataset, model)[name]


def test_what_the_paper_has_not():
    assert paper.accuracy("validation", "lgc", "club") is None
    assert paper.epoch_time("lgc", "reddit") is None
    assert paper.grid("club", "lgc") == {}
