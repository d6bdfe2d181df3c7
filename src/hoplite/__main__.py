"""``python -m hoplite`` is ``hoplite``."""

from hoplite.cli import main

if __name__ == "__main__":
    main()
