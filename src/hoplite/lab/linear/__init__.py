"""The second table: every linear model, and some that are not, on many graphs by one protocol."""

from hoplite.lab.linear.page import write_page
from hoplite.lab.linear.results import FILE, LinearTable, read_linear
from hoplite.lab.linear.run import linear_table
from hoplite.lab.linear.text import terminal_tables

__all__ = ["FILE", "LinearTable", "linear_table", "read_linear", "terminal_tables", "write_page"]
