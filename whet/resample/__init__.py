"""Draw a sample of a run again with its own random numbers, or branch it at a token, from a checkpoint of the run."""
