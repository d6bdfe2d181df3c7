"""The page of the second table in a real Chromium, with hostile names in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hoplite.lab.linear.page import write_page
from hoplite.lab.linear.results import Column, Figure, LinearTable, Row
from hoplite.lab.results import Difference

HOSTILE = '</script><script>alert("x")</script><img src=x onerror=alert(1)>'


def figure(method: str, problem: str, mean: float, splits: list[int]) -> Figure:
    test: list[float | None] = [mean + 0.001 * s for s in range(3)]
    gap = Difference(
        to="lgc", splits=3, pairs=1, mean=0.01, low=0.0, high=0.02, low_all=0.0, high_all=0.02
    )
    return Figure(
        method=method, problem=problem, reading={"scale": HOSTILE}, config={"hops": 2},
        splits=splits, seeds=[0, 1, 2], val=test, test=test, test_mean=mean, test_std=0.01,
        baseline=0.3, tried=4, finalists=2, runs=8, diverged=0, search_seconds=12.0, epochs=50.0,
        ms_per_epoch=1.5, seconds=0.1, difference=gap if len(set(splits)) > 1 else None,
        hoplite="0.1.0",
    )  # fmt: skip


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("pages")
    rows = [Row("lgc", HOSTILE, "lgc", True), Row("other", "Other", HOSTILE, False)]
    columns = [
        Column("cora-public", "Cora", "few", "Public", "Words.", "accuracy"),
        Column("tolokers", HOSTILE, "imbalanced", HOSTILE, HOSTILE, "roc_auc"),
    ]
    figures = [
        figure("lgc", "cora-public", 0.8, [0, 0, 0]),
        figure("lgc", "tolokers", 0.7, [0, 1, 2]),
    ]
    figures += [figure("other", "tolokers", 0.75, [0, 1, 2])]
    full = LinearTable(
        command=HOSTILE, note=HOSTILE, reference="lgc", protocol=[HOSTILE], rows=rows,
        columns=columns, figures=figures, absent=[HOSTILE], missing=2,
    )  # fmt: skip
    tables = {"hostile": full, "empty": LinearTable(), "plain": replace(full, absent=[], missing=0)}
    for name, table in tables.items():
        write_page(table, folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in tables}


@pytest.mark.parametrize(
    ("name", "size", "theme"),
    [("hostile", "narrow", "dark"), ("plain", "wide", "light"), ("empty", "wide", "light")],
)
def test_it_renders(visit, looks, name, size, theme):
    page = visit(name, size, theme)
    looks.toggle_tables(page)
    assert looks.overflow(page) <= 0
    assert looks.weak(page) == []
    looks.check_structure(page)
    assert page.locator("img").count() == page.locator("[onerror]").count() == 0
    if name == "hostile":
        assert HOSTILE in page.locator("#s2").text_content()
        assert "★" in page.locator("#s1").text_content()
