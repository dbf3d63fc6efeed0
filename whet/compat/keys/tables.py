"""Every table of rows by name."""

from __future__ import annotations

from whet.compat.keys.easyr1 import EASYR1, VPPO
from whet.compat.keys.generation import EVAL, GENERATION
from whet.compat.keys.or1 import OR1
from whet.compat.keys.supervised import SFT
from whet.compat.keys.verl import VERL

TABLES = {
    "verl": VERL,
    "or1": OR1,
    "sft": SFT,
    "generation": GENERATION,
    "eval": EVAL,
    "easyr1": EASYR1,
    "vppo": VPPO,
}
