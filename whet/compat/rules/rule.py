"""Registry of rules: `@rule("kl")` names a function of (There, Here)."""

from __future__ import annotations

from collections.abc import Callable

from whet.compat.translation import Here, There

Rule = Callable[[There, Here], None]
RULES: dict[str, Rule] = {}


def rule(name: str) -> Callable[[Rule], Rule]:
    """Register a rule under the name that rows give."""

    def register(function: Rule) -> Rule:
        RULES[name] = function
        return function

    return register
