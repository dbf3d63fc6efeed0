"""The command line: one module for each subcommand, found by its file name."""

from whet.cli.dispatch import main
from whet.config.examples import examples_folder

__all__ = ["examples_folder", "main"]
