"""Find the final answer in a response, and say whether two answers mean the same. Other reward files import this one.

Answers are compared as mathematics: `\\frac{1}{2}`, `0.5` and `1/2` are equal, `(x+1)^2` equals `x^2+2x+1`, lists are
equal item by item, and what is no mathematics is compared as text. Expressions are evaluated, letters by numbers drawn
once; no response is ever run as code.
"""

import ast
import math
import operator
import re
from random import Random

BOXED = "\\boxed{"
LONGEST = 300  # characters; what is longer is no final answer
TOLERANCE = 1e-6

WRAPPERS = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mbox|operatorname)\s*\{([^{}]*)\}")
UNITS = re.compile(
    r"(?<=[\d})])\s*(?:\\?%|percent|degrees?|units?|(?:square|cubic)\s+\w+|[cmk]?m(?:\^?[23])?|inches|inch|feet|miles?"
    r"|hours?|minutes?|seconds?|dollars?|cents?)\.?$",
    re.IGNORECASE,
)
NOISE = re.compile(r"\\(?:left|right|displaystyle|[!,;: ])|[$~]|\^\{?\\circ\}?|\\degree|°")
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?:\D|$))")
CHOICE = re.compile(r"\(?([A-Za-z])\)?[.:]?")
NAMES = {"pi": math.pi, "e": math.e}
WORDS = {"\\cdot": "*", "\\times": "*", "\\div": "/", "\\pi": " pi ", "^": "**", "{": "(", "}": ")", "·": "*", "×": "*"}
OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def last_boxed(text: str) -> str | None:
    """What the last \\boxed{...} holds, braces inside it included; None where there is none or it never ends."""
    start = text.rfind(BOXED)
    if start < 0:
        return None
    depth, begin = 1, start + len(BOXED)
    for end in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[begin:end].strip()
    return None


def same_answer(said: str | None, truth: str) -> bool:
    """Whether an answer means what the true one means."""
    if said is None or len(said) > LONGEST:
        return False
    ours, theirs = tidy(said), tidy(str(truth))
    if ours.lower() == theirs.lower() or _same_choice(ours, theirs):
        return True
    if not ours or not theirs:
        return False
    left, right = _items(ours), _items(theirs)
    if len(left) != len(right) or (len(left) > 1 and (ours[0], ours[-1]) != (theirs[0], theirs[-1])):
        return False
    return all(_same_value(a, b) for a, b in zip(left, right))


def tidy(text: str) -> str:
    """An answer without what does not change its meaning: dollar signs, spacing commands, units, a leading `x =`."""
    text = NOISE.sub("", text.strip()).strip().rstrip(".").strip()
    text = THOUSANDS.sub("", WRAPPERS.sub(r"\1", text))
    text = re.sub(r"^[A-Za-z]\w*\s*=\s*", "", text)
    text = re.sub(r"\\[dt]frac", r"\\frac", text)
    return re.sub(r"\s+", " ", UNITS.sub("", text)).strip()


def _same_choice(ours: str, theirs: str) -> bool:
    """A letter of multiple choice: `B`, `(B)` and `B.` are one, and `B. 12` begins with it."""
    truth = CHOICE.fullmatch(theirs)
    said = CHOICE.fullmatch(ours) or re.match(r"\(?([A-Z])[).:]\s", ours)
    return bool(truth and said and truth[1].upper() == said[1].upper())


def _items(text: str) -> list[str]:
    """The items of a tuple, interval or list; commas inside brackets do not count."""
    inner = text[1:-1] if text[0] in "([" and text[-1] in ")]" and "," in text else text
    items, depth = [""], 0
    for letter in inner:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            items.append("")
        else:
            items[-1] += letter
    return [item.strip() for item in items]


def _same_value(ours: str, theirs: str) -> bool:
    if ours.lower() == theirs.lower():
        return True
    for seed in range(3):  # expressions in letters are equal when they are so wherever one looks
        ours_value, theirs_value = evaluate(ours, seed), evaluate(theirs, seed)
        if ours_value is None or theirs_value is None:
            return False
        if abs(ours_value - theirs_value) > TOLERANCE * max(1.0, abs(theirs_value)):
            return False
    return True


def evaluate(text: str, seed: int = 0) -> float | None:
    """The value of an expression in LaTeX or plain writing, each letter a number drawn from `seed`; or None."""
    try:
        value = _value(ast.parse(_as_python(text), mode="eval").body, seed)
    except (SyntaxError, ValueError, ArithmeticError, TypeError, RecursionError, MemoryError):
        return None
    return value if isinstance(value, float) and math.isfinite(value) else None


def _as_python(text: str) -> str:
    while True:
        plain = re.sub(r"\\frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r"((\1)/(\2))", text)
        plain = re.sub(r"\\frac\s*(\d)\s*(\d)", r"((\1)/(\2))", plain)
        plain = re.sub(r"\\sqrt\s*\[([^\]]*)\]\s*\{([^{}]*)\}", r"((\2)**(1/(\1)))", plain)
        plain = re.sub(r"\\sqrt\s*(?:\{([^{}]*)\}|(\d))", r"((\1\2)**(1/2))", plain)
        if plain == text:
            break
        text = plain
    for word, symbol in WORDS.items():
        text = text.replace(word, symbol)
    if "\\" in text:
        raise ValueError("a command that is not known here")
    text = re.sub(r"(?<=[\w.)])\s+(?=[\w(])", "*", text.strip())  # 2 pi, (a) (b)
    text = re.sub(r"(?<=\d)(?=[A-Za-z(])|(?<=\))(?=[\w(])", "*", text)  # 2x, 3(x+1), (a)(b)
    return re.sub(r"\b(?!pi\b)([A-Za-z])(?=[A-Za-z]\b)", r"\1*", text)  # xy


def _value(node: ast.expr, seed: int) -> float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return float(node.value)
    if isinstance(node, ast.Name):
        return NAMES.get(node.id) or Random(f"{node.id} {seed}").uniform(0.5, 2.0)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        return (-1 if isinstance(node.op, ast.USub) else 1) * _value(node.operand, seed)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](_value(node.left, seed), _value(node.right, seed))
    raise ValueError("not arithmetic")
