"""The program in a response: the last fenced block of Python, else the last fenced block."""

from __future__ import annotations

import re

from whet.rewards.answers.extract import after_thoughts

LONGEST = 200_000  # characters of a program
_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+#.-]*)[^\n`]*$", re.MULTILINE)
_PYTHON = ("python", "py", "python3")


def program_in(response: str) -> str | None:
    """The last block that says it is Python, else the last block of no language; None where there is none."""
    for text in dict.fromkeys((after_thoughts(response), response)):
        found = blocks(text)
        for wanted in (_PYTHON, ("",)):
            for language, program in reversed(found):
                if language in wanted and program.strip():
                    return program[:LONGEST]
    return None


def blocks(text: str) -> list[tuple[str, str]]:
    """Language and content of every fenced block, in order; a fence that nothing closes ends with the text."""
    found, start, language = [], None, ""
    for fence in _FENCE.finditer(text):
        if start is None:
            start, language = fence.end() + 1, fence[1].lower()
        else:
            found.append((language, text[start : fence.start()]))
            start = None
    if start is not None:
        found.append((language, text[start:]))
    return found


# As the originals cut it out; only for `match`.


def of_prime(response: str) -> str:
    """prime_code: behind the last "```python" up to the next fence, or the whole response."""
    return response.rpartition("```python")[2].partition("```")[0]


def of_sandbox_fusion(response: str) -> str | None:
    """sandbox_fusion: the last Python fence, else the first fence of any kind."""
    if "```python" in response:
        return response.rpartition("```python")[2].partition("```")[0]
    if "```" not in response:
        return None
    parts = response.split("```")
    if len(parts) < 2:
        return None
    first, newline, rest = parts[1].partition("\n")
    return rest if newline and first.strip().isalpha() else parts[1]


def of_or1(response: str) -> str | None:
    """Skywork-OR1: the last "```python" that a line break follows, in the second piece that think tags divide."""
    pieces = response.split("</think>")
    text = pieces[1] if len(pieces) > 1 else response
    opening, found, at = "```python\n", None, 0
    while (start := text.find(opening, at)) >= 0:
        close = text.find("```", start + len(opening))
        if close < 0:
            break
        found, at = text[start + len(opening) : close], close + 3
    return found
