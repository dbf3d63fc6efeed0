"""`python -m whet.cli`: the command line."""

import sys

from whet.cli.dispatch import main

if __name__ == "__main__":
    sys.exit(main())
