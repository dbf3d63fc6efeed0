"""`whet generate` and `whet eval`: samples to a file, and scores of a model, a server or a file of responses."""
