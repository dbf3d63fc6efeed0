"""Intercept another system's mains inside a script: a folder of small programs that stands first on the PATH.

Nothing is installed and no module is replaced. `python`, `python3`, `torchrun` and `ray` of that folder run
`intercept.py`, which starts whet for a main of the system and the real program for everything else.
"""

from whet.compat.shim.folder import Shim, shimmed

__all__ = ["Shim", "shimmed"]
