"""The directive `picture`: a drawing of docs/_ext/drawings.py, made by the library at the build.

:::{picture} bases
:alt: what it shows, in a sentence
The caption.
:::
"""

from __future__ import annotations

import drawings
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Picture(SphinxDirective):
    required_arguments = 1
    option_spec = {"alt": directives.unchanged_required}  # noqa: RUF012 - as docutils has it
    has_content = True

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        if name not in drawings.DRAWINGS:
            raise self.error(f"no picture {name!r}; there are {', '.join(drawings.DRAWINGS)}.")
        figure = nodes.figure(classes=["drawn"])
        svg = drawings.DRAWINGS[name](self.options.get("alt", name))
        figure += nodes.raw("", f'<div class="scroll">{svg}</div>', format="html")
        if self.content:
            caption = nodes.caption("", "")
            words, _ = self.state.inline_text(" ".join(self.content), self.lineno)
            caption += words
            figure += caption
        return [figure]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("picture", Picture)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
