"""Results and explanations -> HTML pages, a Markdown page, and tables for the terminal."""

from hoplite.lab.report.check import check_results, load_results
from hoplite.lab.report.explanation import explanation_page, write_explanation
from hoplite.lab.report.markdown import markdown, write_markdown
from hoplite.lab.report.page import check_libraries, page, write_report
from hoplite.lab.report.terminal import terminal_tables

__all__ = [
    "check_libraries",
    "check_results",
    "explanation_page",
    "load_results",
    "markdown",
    "page",
    "terminal_tables",
    "write_explanation",
    "write_markdown",
    "write_report",
]
