"""Keys of the other systems: one row for each, with whet's key, how the value is translated, and a sentence."""
