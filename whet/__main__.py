"""`python -m whet`, and `torchrun -m whet`: the command line."""

import sys

from whet.cli import main

if __name__ == "__main__":
    sys.exit(main())
