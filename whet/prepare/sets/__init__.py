"""Data sets that `whet data NAME` prepares: one file each, whose name is the data set's."""
