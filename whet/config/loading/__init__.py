"""From files and arguments to a `Config`: layers, aliases, YAML, interpolations."""
