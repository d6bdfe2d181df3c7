"""``python -m hoplite`` and ``hoplite``."""

import sys

from hoplite.stopping import stopping


def main() -> None:
    """Run the command line; see :mod:`hoplite.stopping` for the signals that end it."""
    stopping.listen(sys.argv[1:])
    try:
        try:
            from hoplite.cli import main as run

            run()
        except (ImportError, MemoryError) as error:
            from hoplite.errors import is_shortage

            if not is_shortage(error):
                raise
            sys.stderr.write("error: there is not enough memory to load the libraries.\n")
            sys.exit(1)
        finally:
            stopping.over = True  # from here on no signal interrupts, so none is missed
    finally:
        if stopping.number is not None:
            stopping.finish()


if __name__ == "__main__":
    main()
