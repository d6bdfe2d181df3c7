"""Search: which settings are tried, how they are compared, what is kept of each trial."""

from hoplite.search.auto import AutoResult, auto
from hoplite.search.results import ConfigurationScores, SearchResult, train_command
from hoplite.search.run import SearchProgress, full_options, search
from hoplite.search.space import Space, parse_space, read_space
from hoplite.search.trials import FinishedTrial, Scores, Trial

__all__ = [
    "AutoResult",
    "ConfigurationScores",
    "FinishedTrial",
    "Scores",
    "SearchProgress",
    "SearchResult",
    "Space",
    "Trial",
    "auto",
    "full_options",
    "parse_space",
    "read_space",
    "search",
    "train_command",
]
