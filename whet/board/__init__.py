"""`whet board` and `whet report`: run folders as a local page, and as one HTML file. Nothing here writes to a run."""
