"""A local page, and the same as JSON over HTTP: predictions, explanations, changes of one node.

    answers   what is asked of the model, without HTTP
    schema    the types of what comes and goes; openapi tells them
    app       the routes; guard and work keep requests within limits
    server    a socket, and uvicorn on it

It only reads. ``hoplite serve`` starts it (see docs/serve.md).
"""

from hoplite.errors import require_extra

NEEDED = ("starlette", "uvicorn", "jinja2")


def check_libraries() -> None:
    """HopliteError unless the extra ``serve`` is installed."""
    require_extra("serve", "`hoplite serve`", *NEEDED)
