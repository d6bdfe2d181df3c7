"""A local page, and the same as JSON over HTTP: predictions, explanations, changes of one node.

    answers   questions about the model's predictions, without HTTP, and the types of the answers;
              look-up of names
    app       FastAPI's routes, host check and limits; uvicorn that runs them

The server only reads. ``hoplite serve`` starts it (see docs/serve.md).
"""

from hoplite.errors import require_extra


def check_libraries() -> None:
    """HopliteError unless the extra ``serve`` is installed."""
    require_extra("serve", "`hoplite serve`", "fastapi", "uvicorn")
