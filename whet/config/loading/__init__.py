"""Load a `Config` from files and arguments: layers, aliases, YAML, interpolations."""
