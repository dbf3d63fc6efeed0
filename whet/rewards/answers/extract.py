"""Find the final answer of a response: boxes, tags, marked lines.

Responses are hostile: every function here takes linear time, or looks at a bounded end of the text.
"""

from __future__ import annotations

import re

LONGEST_BOX = 10_000  # characters in a box; more is no final answer
MOST_BOXES = 100  # looked at, from the end
STATED_END = 2_000  # characters at the end of a response in which an answer may be stated without a box

_OPEN = re.compile(r"\s{0,8}\{")
_TOKEN = re.compile(r"\s{1,8}([^\s${}\\][^\s$]{0,99})")
_BETWEEN = re.compile(
    r"(?:\s|\$|,|;|&|\\quad|\\qquad|\\[,;: ])*(?:(?:\\text\{\s*)?(?:and|or)\s*\}?)?(?:\s|\$|,|\\[,;: ])*"
)
_STATED = re.compile(
    r"(?:final\s+|correct\s+)?answers?\s{0,4}(?:\*\*|__)?\s{0,4}(?:(?:is|are)\b\s{0,4}:?|:|=)\s{0,4}(?:\*\*|__)?\s*([^\n]+)",
    re.IGNORECASE,
)
_INLINE = re.compile(r"\$([^$\n]{1,500})\$|\\\(((?:(?!\\\)).){1,500})\\\)|\\\[((?:(?!\\\]).){1,500})\\\]", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])[-+]?\$?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:/\d+)?%?")


def closing_brace(text: str, start: int, limit: int = LONGEST_BOX) -> int:
    """Position of the brace that closes the one before `start`, or -1; at most `limit` characters are looked at."""
    depth, at, end = 1, start, min(len(text), start + limit)
    while at < end:
        char = text[at]
        if char == "\\":
            at += 1  # \{ and \} are characters
        elif char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                return at
        at += 1
    return -1


def boxes(text: str, most: int = MOST_BOXES) -> list[tuple[int, int, str]]:
    r"""Beginning, end and content of the last `\boxed{...}`s in their order; empty ones and mentions are left out."""
    found: list[tuple[int, int, str]] = []
    end = len(text)
    for _ in range(most):
        start = text.rfind("\\boxed", 0, end)
        if start < 0:
            break
        end = start
        after = start + len("\\boxed")
        if brace := _OPEN.match(text, after):
            close = closing_brace(text, brace.end())
            if close < 0:
                if not found:
                    return []  # the response ended inside its last box
                continue
            content, stop = text[brace.end() : close], close + 1
        elif token := _TOKEN.match(text, after):
            content, stop = token[1], token.end()
            if content.rstrip(".,").isalpha() and len(content.rstrip(".,")) > 1:
                continue  # "I used \boxed as asked"
        else:
            continue
        if content.strip() and (not found or stop <= found[0][0]):  # of nested boxes, the innermost
            found.insert(0, (start, stop, content.strip()))
    return found


def boxed_answer(text: str) -> str | None:
    r"""Content of the last box; of several that only commas, "and" or "or" separate, a list of their contents."""
    found = boxes(text)
    if not found:
        return None
    chain = [found[-1]]
    for box in reversed(found[:-1]):
        if chain[0][0] - box[1] > 60 or not _BETWEEN.fullmatch(text, box[1], chain[0][0]):
            break
        chain.insert(0, box)
    contents = list(dict.fromkeys(content for _, _, content in chain))
    return ", ".join(contents)


def after_thoughts(text: str) -> str:
    """Return the text after the last closing think tag."""
    return text.rpartition("</think>")[2]


def tagged_answers(text: str) -> list[str]:
    """Contents of all answer tags; an opening tag belongs to the next closing one, whatever the case of letters."""
    lower, found, at = text.lower(), [], 0
    if len(lower) != len(text):  # a few letters change their length
        lower = text
    while (close := lower.find("</answer>", at)) >= 0:
        start = lower.rfind("<answer>", at, close)
        if start >= 0:
            found.append(text[start + len("<answer>") : close])
        at = close + len("</answer>")
    return found


def tagged_answer(text: str) -> str | None:
    """Content of the last answer tags."""
    found = tagged_answers(text)
    return found[-1].strip() if found else None


def stated_answer(text: str) -> str | None:
    """Return the text after the last "answer is" or "answer:" on its line, at the end of a response."""
    found = _STATED.findall(text[-STATED_END:])
    if not found:
        return None
    return re.split(r"\.\s+(?=[A-Z])", found[-1].strip())[0].strip(" *_") or None


def last_formula(text: str) -> str | None:
    """The last inline formula at the end of a response; of several that only "and" or "or" separate, their list."""
    end = text[-STATED_END:]
    found = list(_INLINE.finditer(end))
    if not found:
        return None
    chain = [found[-1]]
    for formula in reversed(found[:-1]):
        if not _BETWEEN.fullmatch(end, formula.end(), chain[0].start()):
            break
        chain.insert(0, formula)
    return ", ".join(next(group for group in each.groups() if group is not None).strip() for each in chain)


def last_number(text: str) -> str | None:
    """The last number at the end of a response, as it is written there."""
    found = _NUMBER.findall(text[-STATED_END:])
    return found[-1] if found else None


def final_answer(text: str) -> str | None:
    """The answer behind the thoughts: boxed, else tagged, else stated, else the last formula or number."""
    text = text.replace("\0", "")
    for part in dict.fromkeys((after_thoughts(text), text)):
        if "\\boxed" in part:
            if (found := boxed_answer(part)) is not None:
                return found
            continue
        for find in (tagged_answer, stated_answer, last_formula, last_number):
            if found := find(part):
                return found
    return None
