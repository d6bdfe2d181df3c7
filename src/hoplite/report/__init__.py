"""Results -> one HTML page, a Markdown page, and rows of tables for the terminal."""

from hoplite.report.check import check_results, load_results
from hoplite.report.markdown import markdown, write_markdown
from hoplite.report.page import page, write_report
from hoplite.report.terminal import terminal_tables

__all__ = [
    "check_results",
    "load_results",
    "markdown",
    "page",
    "terminal_tables",
    "write_markdown",
    "write_report",
]
