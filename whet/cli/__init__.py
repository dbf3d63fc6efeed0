"""The command line: one module for each subcommand, found by its file name."""

from whet.assets.examples import examples_folder
from whet.cli.dispatch import main

__all__ = ["examples_folder", "main"]
