"""Characters of other scripts and typography in plain ASCII or LaTeX: digits, signs, spaces, quotation marks."""

from __future__ import annotations

import unicodedata

_FULL_WIDTH = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
_SUPERSCRIPTS = {ord(sign): digit for digit, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
_OTHERS = {
    **dict.fromkeys(map(ord, "−‐‑‒–—﹣⁻"), "-"),
    **dict.fromkeys(
        map(ord, "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u3000"), " "
    ),
    **dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff\u00ad\ufe0f\u20e3\x00"), ""),
    **dict.fromkeys(map(ord, "“”„«»「」『』"), '"'),
    **dict.fromkeys(map(ord, "‘’‚′"), "'"),
    ord("٫"): ".",
    ord("٬"): ",",
    ord("。"): ".",
    ord("、"): ",",
    ord("⁄"): "/",
    ord("∕"): "/",
    ord("٪"): "%",
}
_TYPOGRAPHY = {**_FULL_WIDTH, **_OTHERS}
_SIGNS = {
    ord("×"): r"\times ",
    ord("⋅"): r"\cdot ",
    ord("·"): r"\cdot ",
    ord("÷"): "/",
    ord("°"): r"^\circ ",
    ord("º"): r"^\circ ",
    ord("π"): r"\pi ",
    ord("∞"): r"\infty ",
    ord("√"): r"\sqrt ",
    ord("≤"): r"\le ",
    ord("≥"): r"\ge ",
    ord("≠"): r"\ne ",
    ord("≈"): r"\approx ",
    ord("±"): r"\pm ",
    ord("∪"): r"\cup ",
    ord("∩"): r"\cap ",
    ord("∅"): r"\emptyset ",
    ord("∈"): r"\in ",
    ord("θ"): r"\theta ",
    ord("α"): r"\alpha ",
    ord("β"): r"\beta ",
    **{code: f"^{{{digit}}}" for code, digit in _SUPERSCRIPTS.items()},
}
_FRACTIONS = {ord(sign): f" {unicodedata.normalize('NFKC', sign).replace('⁄', '/')} " for sign in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"}


def ascii_digits(text: str) -> str:
    """Text with ASCII digits, minus signs, spaces and quotation marks; zero-width characters are removed."""
    if text.isascii() and "\0" not in text:
        return text
    text = text.translate(_TYPOGRAPHY)
    if text.isascii():
        return text
    return "".join(
        str(unicodedata.decimal(char)) if ord(char) > 127 and unicodedata.category(char) == "Nd" else char
        for char in text
    )


def latex_signs(text: str) -> str:
    """Text with ASCII digits, and LaTeX commands in place of mathematical signs."""
    text = ascii_digits(text)
    return text if text.isascii() else text.translate({**_SIGNS, **_FRACTIONS})
