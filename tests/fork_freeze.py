"""The last module that the fork server imports: tables that every run would build anew, and no garbage in sight."""

import atexit
import gc
import os
from contextlib import suppress

from whet.config.schema import all_keys, all_presets, all_sections

# fork_server.py has put the folder of tests on the path; what forks start does without it.
os.environ["PYTHONPATH"] = os.environ["PYTHONPATH"].partition(os.pathsep)[2]
for key in all_keys().values():
    key.choices  # noqa: B018
all_sections(), all_presets()
with suppress(ImportError, AttributeError, TypeError):  # other versions of transformers build it in other ways
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping

    get_checkpoint_conversion_mapping("llama")
gc.collect()
gc.enable()
gc.freeze()  # what is here by now stays: forks need not look through it, and so do not copy its pages
atexit.register(gc.unfreeze)  # of the server itself: triton reports what is left at the end
