"""A browser, and a results file as `hoplite reproduce` writes it, with hostile names in it."""

import contextlib
import copy
import functools
import itertools
import math

import pytest

from hoplite.lab.report import write_report
from hoplite.lab.results import as_results

HOSTILE = '</script><script>alert("x")</script><img src=x onerror=alert(1)>'
DATASETS = ("citeseer", "cora", "pubmed")
MODELS = ("sgc", "gat", "gcn", "egc", "lgc", "hlgc")
GATES = ("class", "node", "feature")
BASE = {"citeseer": 0.712, "cora": 0.811, "pubmed": 0.796}
STEPS = {"sgc": -0.015, "gat": -0.004, "gcn": 0.0, "egc": 0.002, "lgc": 0.009, "hlgc": 0.011}
WIDTHS = {"wide": 1280, "narrow": 360}
PEERS = [
    {"name": "PyTorch Geometric, GCNConv", "ms_median": 84.0},
    {"name": "plain torch", "ms_median": 42.0},
]

CONTRAST = """() => {
  const luminance = (color) => {
    const parts = color.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255);
    const [r, g, b] = parts.map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = getComputedStyle(e).backgroundColor;
      if (!/^rgba\\(.*, 0\\)$|^transparent$/.test(color) && !/\\/ /.test(color)) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const weak = [];
  const chosen = "p, li, h1, h2, h3, th, td, caption span, .diff, .stamp, .paper, .chip, .note, " +
    "summary, .score, .key, dt, dd, code";
  for (const element of document.querySelectorAll(chosen)) {
    if (element.closest(".bar, [hidden]")) continue;
    const [a, b] = [getComputedStyle(element).color, behind(element)].map(luminance);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) weak.push(`${element.tagName}.${element.className} ${ratio.toFixed(2)}`);
  }
  return [...new Set(weak)];
}"""

NAMELESS = """() => [...document.querySelectorAll("button, a[href], summary, [role=region]")]
  .filter((e) => !(e.getAttribute("aria-label") ?? e.textContent).trim()).map((e) => e.outerHTML)"""

HEADINGS = """() => [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")]
  .map((heading) => Number(heading.tagName[1]))"""


def config(model, hops=20):
    values = {"model": model, "hops": hops, "lr": 0.2, "weight_decay": 0.0005, "dropout": 0.5}
    return values | {"hidden": 16, "operator": "renormalized", "basis": "monomial"}


def accuracy(protocol, dataset, model, gate=None, shift=0.0):
    mean = BASE[dataset] + STEPS[model] + shift + (0.006 if protocol == "test" else 0.0)
    spread = [-0.006, -0.002, 0.0, 0.003, 0.005]
    test = [round(mean + s, 4) for s in spread]
    option = f" --gate {gate}" if gate else ""
    return {
        "protocol": protocol,
        "dataset": dataset,
        "model": model,
        "gate": gate,
        "grid": "reduced" if gate == "feature" else "paper",
        "cut": "k above 20 was left out: a run takes ten minutes." if gate == "feature" else None,
        "configurations": 189,
        "runs": 945,
        "minutes": 3.2,
        "config": config(model) | ({"gate": gate} if gate else {}),
        "seeds": [0, 1, 2, 3, 4],
        "val_mean": mean + 0.002 - abs(shift),
        "val_std": 0.004,
        "test_mean": sum(test) / 5,
        "test_std": 0.0039,
        "val": test,
        "test": test,
        "command": f"hoplite train {dataset} --model {model} --hops 20 --lr 0.2{option}",
        "date": "2026-11-15",
        "hoplite": "0.1.0",
    }


def timing(dataset, model, gate=None):
    ms = {"sgc": 0.8, "gat": 31.0, "gcn": 4.0, "egc": 1.9, "lgc": 2.1, "hlgc": 44.0}[model]
    ms *= {"citeseer": 1.3, "cora": 1.0, "pubmed": 2.2}[dataset]
    keys = {"dataset": dataset, "model": model, "gate": gate, "config": config(model)}
    times = {"ms_median": ms, "ms_low": 0.95 * ms, "ms_high": 1.12 * ms}
    return (
        keys
        | times
        | {
            "threads": 2,
            "repeats": 5,
            "epochs": 100,
            "peers": PEERS if model == "gcn" else [],
            "others": 0.1,
        }
    )


def curve(model, rate, gate=None):
    def loss(floor, noise=0.0):
        return [
            floor + (1.946 - floor) * math.exp(-rate * i) + noise * math.sin(i) for i in range(140)
        ]

    keys = {"dataset": "cora", "model": model, "gate": gate, "config": config(model), "seed": 0}
    return keys | {
        "best_epoch": 40,
        "train_loss": loss(0.35, 0.01),
        "val_loss": loss(0.8),
        "test_loss": loss(0.76),
    }


def coefficients(dataset, model, gate=None):
    k = 20
    mean = {
        "egc": [1.7**i / math.factorial(i) for i in range(k + 1)],
        "lgc": [0.9 * 0.82**i + 0.05 * math.cos(i) for i in range(k + 1)],
        "hlgc": [0.7 * math.cos(i / 3) * 0.93**i + 0.2 for i in range(k + 1)],
    }[model]
    std = [0.05 + 0.02 * abs(math.sin(i)) for i in range(k + 1)]
    keys = {"dataset": dataset, "model": model, "gate": gate, "config": config(model)}
    return keys | {
        "seeds": [0, 1, 2, 3, 4],
        "mean": mean,
        "std": std,
        "runs": [mean] * 5,
        "node_std": [0.04] * (k + 1) if model == "hlgc" else None,
    }


def spectrum(dataset):
    points = [-0.8 + 1.8 * i / 120 for i in range(121)]
    density = [math.exp(-((x - 0.2) ** 2) / 0.12) / 0.614 for x in points]
    responses = []
    for model, gate, scale in (("sgc", None, 1), ("egc", None, 6), ("lgc", None, 3)):
        mean = {
            "sgc": [x**20 for x in points],
            "egc": [math.exp(1.7 * x) for x in points],
            "lgc": [sum(0.9 * (0.82 * x) ** i for i in range(21)) for x in points],
        }[model]
        entry = {"model": model, "gate": gate, "config": config(model)}
        responses.append(entry | {"mean": mean, "std": [0.03 * scale] * len(points)})
    return {
        "dataset": dataset,
        "operator": "renormalized",
        "points": points,
        "density": density,
        "responses": responses,
    }


def on_splits(dataset, model, gate=None, shift=0.0):
    test = [round(BASE[dataset] + 0.01 * math.sin(s) + shift, 4) for s in range(20)]
    keys = {"dataset": dataset, "model": model, "gate": gate, "config": config(model)}
    difference = {"to": "lgc", "splits": 20, "pairs": 9, "mean": shift}
    ends = {"low": -0.002, "high": 0.002, "low_all": -0.003, "high_all": 0.003}
    difference |= {name: shift + end for name, end in ends.items()}
    return keys | {
        "val": test,
        "test": test,
        "test_mean": sum(test) / 20,
        "test_std": 0.007,
        "difference": difference if gate else None,
        "command": "hoplite reproduce --comparison --out results",
        "hoplite": "0.1.0",
    }


def gated(make, *arguments):
    """A result per gate of hLGC."""
    return [make(*arguments, "hlgc", gate) for gate in GATES]


def full():
    rows = [
        accuracy(protocol, dataset, model)
        for protocol in ("validation", "test")
        for dataset in DATASETS
        for model in MODELS[:-1]
    ]
    rows += [
        accuracy(protocol, dataset, "hlgc", gate, -0.004 * i)
        for protocol in ("validation", "test")
        for dataset in DATASETS
        for i, gate in enumerate(GATES)
    ]
    machine = {
        "cpu": "Intel Xeon Platinum 8488C",
        "cores": 2,
        "threads": 2,
        "memory_gb": 25.0,
        "busy_before": 0.02,
        "kernels": "native, avx512",
        "system": "Linux x86_64",
        "versions": {"python": "3.11.2", "hoplite": "0.1.0", "torch": "2.13.0", "numpy": "2.4.6"},
    }
    return {
        "format": 1,
        "kind": "full",
        "command": "hoplite reproduce --out results",
        "provenance": {"date": "2026-11-15", "machine": machine},
        "accuracy": rows,
        "timing": [timing(d, m) for d in DATASETS for m in MODELS[:-1]]
        + [timing(d, "hlgc", g) for d in DATASETS for g in GATES],
        "curves": [
            curve("sgc", 0.02),
            curve("egc", 0.03),
            curve("lgc", 0.06),
            curve("hlgc", 0.09, "class"),
        ],
        "coefficients": [coefficients(d, m) for d in DATASETS for m in ("egc", "lgc")]
        + [coefficients(d, "hlgc", g) for d in DATASETS for g in ("class", "node")],
        "spectrum": [spectrum(d) for d in DATASETS],
        "comparison": [
            on_splits(d, model, gate, shift)
            for d in DATASETS
            for model, gate, shift in (
                ("lgc", None, 0.0),
                ("hlgc", "node", 0.002),
                ("hlgc", "class", -0.005 if d == "pubmed" else 0.004),
                ("hlgc", "feature", -0.004 if d == "pubmed" else 0.0),
            )
        ],
    }


def hostile():
    """The full results with hostile text wherever a file can hold text."""
    results = full()
    results["command"] = f"hoplite reproduce {HOSTILE}"
    results["provenance"]["date"] = HOSTILE
    results["provenance"]["machine"] |= {"cpu": HOSTILE, "busy_before": 0.5}
    results["provenance"]["machine"]["versions"][HOSTILE] = HOSTILE
    extra = copy.deepcopy(results["accuracy"][0])
    extra |= {"dataset": HOSTILE, "model": HOSTILE, "gate": HOSTILE, "cut": HOSTILE}
    extra |= {"grid": HOSTILE, "command": HOSTILE, "config": {HOSTILE: HOSTILE}}
    results["accuracy"] += [extra, extra | {"protocol": "test"}]
    for section in ("timing", "curves", "coefficients", "comparison"):
        entry = copy.deepcopy(results[section][1])
        results[section].append(entry | {"dataset": HOSTILE, "model": HOSTILE, "gate": HOSTILE})
    results["comparison"][0]["command"] = HOSTILE
    results["timing"][-1]["peers"] = [{"name": HOSTILE, "ms_median": 1.0}]
    del results["timing"][-1]["others"]
    entry = copy.deepcopy(results["spectrum"][0])
    entry |= {"dataset": HOSTILE, "operator": HOSTILE}
    entry["responses"][0] |= {"model": HOSTILE, "gate": HOSTILE}
    results["spectrum"].append(entry)
    return results


@pytest.fixture
def results():
    return full()


@pytest.fixture
def hostile_results():
    return hostile()


@pytest.fixture(scope="session")
def hostile_text():
    return HOSTILE


@pytest.fixture(scope="session")
def pages(tmp_path_factory):
    """Pages: hostile, of one dataset, of one seed that stopped early, and of nothing."""
    folder = tmp_path_factory.mktemp("report")
    partial = full() | {"kind": "quick", "timing": None, "curves": [], "comparison": []}
    partial["accuracy"] = [entry | {"seeds": [0]} for entry in partial["accuracy"][:3]]
    short = full()  # with few plots, because each takes a while to be drawn
    for section in ("timing", "curves", "coefficients", "spectrum", "comparison"):
        short[section] = [entry for entry in short[section] if entry["dataset"] == "cora"]
    short["curves"] = short["curves"][:1]
    made = {"hostile": hostile(), "short": short, "partial": partial}
    made["empty"] = {"format": 1}
    for name, results in made.items():
        write_report(as_results(results), folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in made}


@contextlib.contextmanager
def opener(browser, pages):
    """Open pages; whatever goes wrong in them, and whatever they ask for, is checked at the end."""
    wrong, asked, contexts = [], [], []

    def open_page(name, size="wide", theme="light", **options):
        width = {"width": WIDTHS[size], "height": 800}
        context = browser.new_context(viewport=width, color_scheme=theme, **options)
        contexts.append(context)
        context.set_default_timeout(600_000)  # on a busy machine the plots take their time
        context.on("request", lambda request: asked.append(request.url))
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        page.on(
            "console",
            lambda message: (
                wrong.append(message.text) if message.type in ("error", "warning") else None
            ),
        )
        page.goto(pages[name].as_uri())
        if options.get("java_script_enabled", True):
            page.wait_for_selector("html[data-ready=true]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []
    files = {path.as_uri() for path in pages.values()}
    assert {url for url in asked if not url.startswith("data:")} <= files


@pytest.fixture
def visit(browser, pages):
    """Open a page for one test."""
    with opener(browser, pages) as open_page:
        yield open_page


@pytest.fixture(scope="module")
def shown(browser, pages):
    """A page for all tests, as drawing it is dear: each leaves it as it was."""
    with opener(browser, pages) as open_page:
        yield functools.cache(open_page)


@pytest.fixture(scope="session")
def looks():
    """What every page keeps to, whatever it shows."""

    class Looks:
        @staticmethod
        def overflow(page):
            return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")

        @staticmethod
        def background(page):
            return page.evaluate("getComputedStyle(document.body).backgroundColor")

        @staticmethod
        def toggle_tables(page):
            """Open or close all of them with the keyboard."""
            for summary in page.locator("summary").all():
                summary.focus()
                page.keyboard.press("Enter")

        @staticmethod
        def weak(page):
            return page.evaluate(CONTRAST)

        @staticmethod
        def check_structure(page):
            assert page.locator("h1").count() == 1
            levels = page.evaluate(HEADINGS)
            assert levels[0] == 1
            assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
            assert page.locator("table").count() == page.locator("table > caption").count()
            assert page.locator("th:not([scope])").count() == 0
            assert page.evaluate(NAMELESS) == []
            for landmark in ("main", "nav[aria-label]", "header", "footer"):
                assert page.locator(f"body > {landmark}").count() == 1
            assert page.locator("html[lang=en]").count() == 1
            identifiers = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
            assert len(identifiers) == len(set(identifiers))

    return Looks
