"""Remake the weights that come with the package: `python -m whet.assets.warm_start [--folder DIR] [NAME ...]`."""

from __future__ import annotations

import argparse
from pathlib import Path

from whet.assets.shipped import FOLDER
from whet.assets.warm_start.recipes import TEACHERS
from whet.assets.warm_start.ship import ship


def main(arguments: list[str] | None = None) -> None:
    """Teach the named models, or all of them, and write them where the package reads them, or elsewhere."""
    parser = argparse.ArgumentParser(prog="python -m whet.assets.warm_start", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(TEACHERS)}; all of them by default")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where to write; the package's own by default")
    chosen = parser.parse_args(arguments)
    for name in chosen.names:
        if name not in TEACHERS:
            parser.error(f"there is no {name!r}; choose from {', '.join(TEACHERS)}")
    for name in chosen.names or TEACHERS:
        print(f"{name}:", flush=True)
        ship(name, *TEACHERS[name](print), chosen.folder)


if __name__ == "__main__":
    main()
