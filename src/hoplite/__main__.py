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


if __name__ == "__main__":
    main()
