"""Loggers, one file each; its name is what `trainer.logger` calls it, its `LOGGER` the class."""
