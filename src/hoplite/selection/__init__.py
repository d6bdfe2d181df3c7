"""Model selection: which settings are tried, how they are compared, what is kept of each trial."""

from hoplite.selection.cells import full_options
from hoplite.selection.halving import AutoResult, auto
from hoplite.selection.ledger import Ledger
from hoplite.selection.ranking import (
    PROTOCOLS,
    SearchResult,
    choose,
    rank,
    runs_table,
    train_command,
)
from hoplite.selection.runner import SearchProgress, run_search, search
from hoplite.selection.space import Space, parse_space, read_space

__all__ = [
    "PROTOCOLS",
    "AutoResult",
    "Ledger",
    "SearchProgress",
    "SearchResult",
    "Space",
    "auto",
    "choose",
    "full_options",
    "parse_space",
    "rank",
    "read_space",
    "run_search",
    "runs_table",
    "search",
    "train_command",
]
