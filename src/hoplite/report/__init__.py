"""Results and explanations -> HTML pages, a Markdown page, and tables for the terminal."""

from hoplite.report.check import check_results, load_results
from hoplite.report.explanation import explanation_page, write_explanation
from hoplite.report.explanation_text import terminal_explanation
from hoplite.report.markdown import markdown, write_markdown
from hoplite.report.page import page, write_report
from hoplite.report.terminal import terminal_tables

__all__ = [
    "check_results",
    "explanation_page",
    "load_results",
    "markdown",
    "page",
    "terminal_explanation",
    "terminal_tables",
    "write_explanation",
    "write_markdown",
    "write_report",
]
