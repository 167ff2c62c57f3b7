"""Entry of ``bertsmith`` and ``python -m bertsmith``."""

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from bertsmith.cli import run  # not for worker processes, which import this module when they start

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
