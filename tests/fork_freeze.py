"""The last module that the fork server imports: tables that every run would build anew, and no garbage in sight."""

import gc
from contextlib import suppress

from whet.config.schema import all_keys

for key in all_keys().values():
    key.choices  # noqa: B018
with suppress(ImportError, AttributeError, TypeError):  # other versions of transformers build it in other ways
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping

    get_checkpoint_conversion_mapping("llama")
gc.collect()
gc.freeze()  # what is here by now stays: forks need not look through it, and so do not copy its pages
