"""Formats of tool calls: one file each, whose name is the format's."""
