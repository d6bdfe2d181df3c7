"""Node and edge tables, and graphs on disk; what is public of them is in :mod:`hoplite.io`."""

import hoplite.io  # noqa: F401  (first, as its modules import those of this package)
