"""The first module that the fork server imports: the imports that follow leave little garbage to look for."""

import gc

gc.disable()  # until fork_freeze.py, the last one
