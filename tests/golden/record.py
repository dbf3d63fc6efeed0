"""`python tests/golden/record.py [REVISION]`: record the golden runs of a git revision (HEAD) on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from runs import ROOT, RUNS, cpu, recording, run


def main(revision: str) -> None:
    """Run everything in a work tree of the revision and write the fingerprints."""
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", revision], check=True, capture_output=True, text=True).stdout.strip()
    recorded = {}
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        subprocess.run([*git, "worktree", "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            for name in RUNS:
                print(f"recording {name}", flush=True)
                recorded[name] = run(name, tree, Path(scratch) / name)
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", str(tree)], check=True)
    file = recording()
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"commit": commit, "cpu": cpu(), "runs": recorded}, indent=1))
    print(f"{len(recorded)} runs of {commit[:7]} on {cpu()}: {file}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "HEAD")
