"""Translations that look at several keys of another system at once; each module registers its functions by name."""
