"""``python -m hoplite`` and ``hoplite``."""

import json
import sys


def main() -> None:
    """Run the command line; one sentence if a library cannot be loaded."""
    try:
        from hoplite.cli import main as run
    except (ImportError, OSError, MemoryError) as error:  # OSError: a shared library is missing
        from hoplite.errors import is_shortage

        name = (getattr(error, "name", None) or "a library").partition(".")[0]
        if name == "hoplite":
            raise
        message = f"{name} cannot be imported ({str(error).splitlines()[0]}); install it again."
        if is_shortage(error):
            message = "there is not enough memory to load the libraries."
        sys.stderr.write(f"error: {message}\n")
        if "--json" in sys.argv:
            sys.stdout.write(json.dumps({"error": message}) + "\n")
        sys.exit(1)
    run()


if __name__ == "__main__":
    main()
