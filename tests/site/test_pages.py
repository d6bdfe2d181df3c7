"""The built pages: links lead somewhere, nothing comes from elsewhere, every name has its entry."""

import inspect
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import typer

import hoplite
from hoplite.cli import app

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "docs" / "_ext"))
api_pages = pytest.importorskip("api_pages", reason="Sphinx is not installed")
sys.path.pop(0)

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src"}


class Page(HTMLParser):
    """The identifiers of a page, where its links lead, and what a browser loads for it."""

    def __init__(self, path: Path):
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.text = path.read_text(encoding="utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if given.get("id"):
            self.ids.add(given["id"])
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag == "link" and given.get("href"):
            self.loaded.append(given["href"])
        if given.get(LOADED.get(tag, "")):
            self.loaded.append(given[LOADED[tag]])
        if given.get("style"):
            self.loaded += re.findall(r"url\(['\"]?([^'\")]+)", given["style"])


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path) for path in site.rglob("*.html") if "_static" not in path.parts}


def test_every_link_leads_to_a_page_and_a_place_in_it(pages, site):
    assert len(pages) > 100
    wrong = []

    def places(target, usual):
        return pages[target].ids if target in pages else {usual}  # of files that are no pages

    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            place = unquote(parts.fragment)
            if not target.is_file() or (place and place not in places(target, place)):
                wrong.append(f"{path.relative_to(site)}: {link}")
    assert wrong == []


def test_nothing_comes_from_elsewhere(pages, site):
    for path, page in pages.items():
        for source in page.loaded:
            parts = urlsplit(source)
            assert not parts.netloc, f"{path}: {source}"
            if parts.path and not parts.scheme:
                assert (path.parent / unquote(parts.path)).is_file(), f"{path}: {source}"
    for style in site.rglob("*.css"):
        for source in re.findall(r"url\(\s*['\"]?([^'\")\s]+)", style.read_text(encoding="utf-8")):
            assert not urlsplit(source).netloc, f"{style}: {source}"
        assert "@import" not in style.read_text(encoding="utf-8"), style


def public():
    """Every public name of Hoplite, and every public method and property of its classes."""
    for name in hoplite.__all__:
        value = getattr(hoplite, name)
        yield f"hoplite.{name}", value
        if inspect.isclass(value) and not issubclass(value, Exception):
            for member in dict.fromkeys(api_pages.members(value)):
                yield f"hoplite.{name}.{member}", getattr(value, member)


def is_described(full, value):
    """By its own docstring, or among the attributes in that of its class."""
    _, name, *member = full.split(".")
    of_class = inspect.getdoc(getattr(hoplite, name)) or ""
    attribute = rf"^([\w]+, )*{member[0]}(, \w+)* : " if member else "$ "
    return bool((inspect.getdoc(value) or "").strip() or re.search(attribute, of_class, re.M))


def test_every_public_name_has_a_docstring():
    assert [full for full, value in public() if not is_described(full, value)] == []


def test_every_public_name_has_an_entry(pages, site):
    for full, value in public():
        name = ".".join(full.split(".")[:2])
        page = pages[site / "api" / f"{name}.html"]
        own = full if inspect.getdoc(value) else name  # else it is among the class's attributes
        assert (f"module-{full}" if inspect.ismodule(value) else own) in page.ids, full
    for module in api_pages.MODULES:
        page = pages[site / "api" / f"hoplite.{module}.html"]
        for name in api_pages.module_names(module):
            assert f"hoplite.{module}.{name}" in page.ids, f"hoplite.{module}.{name}"


def test_every_command_and_option_has_an_entry(pages, site):
    group = typer.main.get_command(app)
    context = group.make_context("hoplite", [], resilient_parsing=True)
    names = group.list_commands(context)
    assert {"train", "predict", "explain"} <= {*names}
    for name in names:
        command = group.get_command(context, name)
        page = pages[site / "cli" / f"hoplite-{name}.html"]
        for option in command.get_params(context):
            if option.param_type_name == "option" and not getattr(option, "hidden", False):
                for flag in option.opts:
                    assert f"cmdoption-hoplite-{name}-{flag.lstrip('-')}" in page.ids, flag
