"""Model selection: which settings are tried, how they are compared, what is kept of each trial."""

from hoplite.selection.ledger import Ledger
from hoplite.selection.protocol import PROTOCOLS, rank
from hoplite.selection.select import (
    SearchResult,
    choose,
    retrain,
    runs_table,
    search,
    train_command,
)
from hoplite.selection.space import Space, read_space

__all__ = [
    "PROTOCOLS",
    "Ledger",
    "SearchResult",
    "Space",
    "choose",
    "rank",
    "read_space",
    "retrain",
    "runs_table",
    "search",
    "train_command",
]
