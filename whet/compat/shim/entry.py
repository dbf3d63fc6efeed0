"""Start whet's command line for one intercepted call; run as a file, with the system, module, options and arguments."""

import json
import os
import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[3])  # the folder that holds this whet, whatever the working folder holds
    sys.path.append(os.getcwd())  # as with python -m there: reward functions import modules of their project
    _, system, module, options, *arguments = sys.argv
    sys.argv = ["whet", "as", "--entry", system, module, *json.loads(options), "--", *arguments]
    runpy.run_module("whet", run_name="__main__", alter_sys=False)
