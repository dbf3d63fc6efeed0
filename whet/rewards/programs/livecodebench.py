"""Test cases of LiveCodeBench: JSON, or base64 of zlib of a pickle of one text that is JSON.

The pickle is read by an unpickler that refuses every global and every persistent id, after a bounded decompression.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import zlib
from typing import Any, NoReturn

from whet.errors import UserError

LARGEST = 256 << 20  # bytes of test cases, decompressed


class _TextOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise UserError(f"private_test_cases is a pickle that asks for {module}.{name}: only a text is accepted")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise UserError("private_test_cases is a pickle with a persistent id: only a text is accepted")


def unpacked(cases: Any) -> list[dict[str, Any]]:
    """Test cases in whichever form a row holds them."""
    if isinstance(cases, str):
        try:
            cases = json.loads(cases) if cases.strip() else []
        except ValueError:
            cases = _decompressed(cases)
    if not isinstance(cases, (list, tuple)) or not all(_is_case(case) for case in cases):
        raise UserError("public_test_cases and private_test_cases must be lists of {input, output, testtype}")
    return list(cases)


def _is_case(case: Any) -> bool:
    return isinstance(case, dict) and "input" in case and "output" in case


def _decompressed(text: str) -> Any:
    try:
        packed = base64.b64decode(text, validate=True)
        reader = zlib.decompressobj()
        data = reader.decompress(packed, LARGEST)
        if reader.unconsumed_tail:
            raise UserError(f"private_test_cases is larger than {LARGEST >> 20} MiB when decompressed")
        value = _TextOnly(io.BytesIO(data)).load()
        if not isinstance(value, str):
            raise UserError(f"private_test_cases is a pickle of {type(value).__name__}: only a text is accepted")
        return json.loads(value)
    except (binascii.Error, zlib.error, pickle.UnpicklingError, ValueError, EOFError, IndexError) as error:
        raise UserError(f"private_test_cases is neither JSON nor base64 of a compressed pickle: {error}") from error
