"""Built-in tools: one file each, whose name is the tool's."""
