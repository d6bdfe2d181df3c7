"""Results and explanations -> HTML pages, a Markdown page, and tables for the terminal."""

from hoplite.lab.report.explanation import explanation_page, write_explanation
from hoplite.lab.report.page import check_libraries, page, write_report
from hoplite.lab.report.text import markdown, terminal_tables, write_markdown

__all__ = [
    "check_libraries",
    "explanation_page",
    "markdown",
    "page",
    "terminal_tables",
    "write_explanation",
    "write_markdown",
    "write_report",
]
