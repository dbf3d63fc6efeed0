"""Start whet for one intercepted call; run as a file, with the system, the module, options and arguments."""

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[3])  # the folder that holds this whet, whatever the working folder holds
    from whet.cli import main

    _, system, module, options, *arguments = sys.argv
    sys.exit(main(["as", "--entry", system, module, *json.loads(options), "--", *arguments]))
