"""The second table as one HTML page, with the style of all pages: no network, no other file."""

from __future__ import annotations

import os

from hoplite.files import atomic_write_text
from hoplite.lab.linear import text, view
from hoplite.lab.linear.results import LinearTable
from hoplite.lab.report.findings import machine_line
from hoplite.lab.report.page import render
from hoplite.lab.results import Results


def write_page(table: LinearTable, out: str | os.PathLike[str], *, mark: str = "") -> None:
    """Write :func:`page` as the file ``out``, completely or not at all."""
    atomic_write_text(out, page(table, mark=mark))


def page(table: LinearTable, *, mark: str = "") -> str:
    """The whole page; everything from ``table`` is escaped."""
    return render(
        "linear.html",
        {},
        effort=text.EFFORT,
        found=view.sections(table),
        headline=view.headline(table),
        mark=mark,
        machine=machine_line(Results(provenance=table.provenance)),
        quoted=text.QUOTED,
        reference=next((r.title for r in table.rows if r.name == table.reference), table.reference),
        coming=view.coming(table),
        settings=view.settings,
        table=table,
        versions=table.provenance.machine.versions,
    )
