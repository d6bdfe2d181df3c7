"""Every code block that the built site shows is one that a test executes: see tests/blocks.py."""

import doctest
import functools
import importlib
import pkgutil
import tomllib
from html.parser import HTMLParser

import pytest
from tests.blocks import DOCS, PAGES, ROOT, blocks, help_examples, is_built, is_formula

import hoplite


class Blocks(HTMLParser):
    """The blocks of a built page: what the divisions around each are, its language and text."""

    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, str, str]] = []
        self._around: list[str] = []
        self._text: list[str] | None = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag == "div":
            self._around.append(dict(attrs).get("class") or "")
        elif tag == "pre":
            self._text = []

    def handle_data(self, data):
        if self._text is not None:
            self._text.append(data)

    def handle_endtag(self, tag):
        if tag == "pre" and self._text is not None:
            around = " ".join(self._around)
            languages = [word for word in around.split() if word.startswith("highlight-")]
            language = languages[-1].removeprefix("highlight-") if languages else "?"
            self.found.append((around, language, "".join(self._text).strip("\n")))
            self._text = None
        elif tag == "div":
            self._around.pop()


class Finder(doctest.DocTestFinder):
    """Finds what pytest's own does: those of cached properties, too."""

    def _from_module(self, module, object):
        own = object.func if isinstance(object, functools.cached_property) else object
        return super()._from_module(module, own)  # pyright: ignore[reportAttributeAccessIssue]


@pytest.fixture(scope="module")
def shown(site):
    """(page, what is around it, language, text) of every block."""
    pages = [path for path in site.rglob("*.html") if "_static" not in path.parts]
    return [
        (path.relative_to(site), *block)
        for path in pages
        for block in Blocks(path.read_text(encoding="utf-8")).found
    ]


@pytest.fixture(scope="module")
def doctests():
    """The text of every docstring whose examples pytest runs."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    options = options["tool"]["pytest"]["ini_options"]
    assert "--doctest-modules" in options["addopts"]
    assert "src/hoplite" in options["testpaths"]
    texts = []
    for module in pkgutil.walk_packages(hoplite.__path__, "hoplite."):
        if not module.name.endswith("__main__"):
            for test in Finder().find(importlib.import_module(module.name)):
                texts += [test.docstring] if test.examples else []
    lines = [line.partition("# doctest:")[0].strip() for text in texts for line in text.split("\n")]
    return "\n".join(lines)


def test_every_block_is_executed(shown, doctests):
    source = {(one.language or "none", one.text) for page in PAGES for one in blocks(page)}
    source |= {("bash", block.text) for block in help_examples().values()}
    wrong = []
    for page, around, language, text in shown:
        folder = page.parts[0]
        if folder == "gallery":
            script = (ROOT / "examples" / f"{page.stem}.py").read_text(encoding="utf-8")
            printed = "sphx-glr-script-out" in around  # by an earlier build that executed it
            run = printed or (language == "Python" and text in script)  # by tests/test_gallery.py
        elif "doctest" in around:
            lines = [line.strip() for line in text.splitlines()]
            run = "\n".join(lines) in doctests and "+SKIP" not in text
        elif folder == "api":
            run = language == "none" and is_formula(text)
        elif folder == "cli" and language == "text":
            run = text.startswith("hoplite ")  # its usage, written by the build
        elif "output" in around.split():
            run = is_built(DOCS / page.with_suffix(".md"))  # it is what the build printed
        else:
            run = (language, text) in source and (language != "none" or is_formula(text))
        if not run:
            wrong.append(f"{page} ({language}): {text}")
    assert not wrong, "\n".join(wrong)
