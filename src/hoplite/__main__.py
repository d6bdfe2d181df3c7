"""``python -m hoplite`` and ``hoplite``."""

import sys


def main() -> None:
    """Run the command line; an interrupt while it is still importing ends quietly, too."""
    try:
        from hoplite.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("error: stopped by the keyboard.\n")
        sys.exit(130)
    except (ImportError, MemoryError) as error:
        from hoplite.errors import is_shortage

        if not is_shortage(error):
            raise
        sys.stderr.write("error: there is not enough memory to load the libraries.\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
