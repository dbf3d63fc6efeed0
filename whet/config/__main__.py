"""`python -m whet.config > docs/config.md` writes the reference page anew."""

from whet.config.describe import reference

print(reference(), end="")
