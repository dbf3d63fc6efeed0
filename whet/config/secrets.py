"""Secrets in a config: values that are never written to files, sent to loggers or printed.

Text that comes from the environment is stored as the `${oc.env:NAME}` that names it. A literal value is left out if the
last part of its name says that it is a secret (api_key, token, password, ...) or if it has the form of a known kind of
key. These are the places where a config can hold one: mappings such as worker.reward.reward_function_kwargs, and
addresses with a password in them.
"""

from __future__ import annotations

import re
from typing import Any

MASK = "***"  # printed in place of a secret
LEFT_OUT = "???"  # stored in place of one: a config that is read with it says that it has to be filled in
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
_NAMES = {"password", "passwd", "passphrase", "pwd", "secret", "credential", "credentials", "authorization", "bearer"}
_JOINED = re.compile(r"(api|access|private|secret|auth|encryption|account|subscription)(key|token|secret|password)s?")
_TEXT_TOKENS = {"pad", "eos", "bos", "unk", "mask", "sep", "cls", "stop", "end", "start", "image", "video", "special"}
# Both are anchored at the beginning of a word, so that a long text is searched in linear time.
_FORMS = re.compile(
    r"(?<![\w-])(?:(sk|pk|rk)-[\w-]{16,}|hf_\w{16,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}"
    r"|AKIA[0-9A-Z]{12,}|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]*|Bearer\s+\S+)"
)
_IN_ADDRESS = re.compile(r"(\b\w{1,32}://)[^/\s:@]*:[^/\s@]+@")
_ENVIRONMENT = re.compile(r"\$\{\s*oc\.env\b|\$\{\s*env\b")
_REFERENCE = re.compile(r"\$\{([^{}:]+)\}")


def is_secret(name: str) -> bool:
    """Return True if the last part of a dotted name marks its value as a secret."""
    words = [word.lower() for word in _WORDS.findall(name.rpartition(".")[2])]
    if not words:
        return False
    if _NAMES & set(words) or _JOINED.fullmatch("".join(words[-2:])) or _JOINED.fullmatch(words[-1]):
        return True
    return words[-1] == "token" and not _TEXT_TOKENS & set(words)


def masked(value: Any, name: str = "", mark: str = MASK) -> Any:
    """The value with every secret in it replaced by `mark`; nothing is changed in place."""
    if value is None or isinstance(value, bool):
        return value
    if is_secret(name) and value not in ("", MASK, LEFT_OUT) and not _is_reference(value):
        return mark
    if isinstance(value, dict):
        return {key: masked(item, str(key), mark) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked(item, "", mark) for item in value]
    if not isinstance(value, str):
        return value
    return mark if _FORMS.fullmatch(value.strip()) else _IN_ADDRESS.sub(rf"\g<1>{MASK}@", _FORMS.sub(MASK, value))


def masked_arguments(arguments: list[str]) -> list[str]:
    """Arguments of a command line as they may be printed."""
    pairs = [argument.partition("=") for argument in arguments]
    return [f"{name}{equals}{masked(value, name) if equals else ''}" for name, equals, value in pairs]


def comes_from_environment(raw: Any, tree: Any = None, seen: set[str] | None = None) -> bool:
    """True if a value as written reads an environment variable, itself or by way of other keys of `tree`.

    Every key is followed once: `seen` holds those that were.
    """
    seen = set() if seen is None else seen
    if isinstance(raw, dict):
        return any(comes_from_environment(item, tree, seen) for item in raw.values())
    if isinstance(raw, list):
        return any(comes_from_environment(item, tree, seen) for item in raw)
    if not isinstance(raw, str) or "${" not in raw:
        return False
    if _ENVIRONMENT.search(raw):
        return True
    if tree is None:
        return False
    return any(_reads(name.strip(), tree, seen) for name in _REFERENCE.findall(raw))


def _is_reference(value: Any) -> bool:
    """Return True if a value names an environment variable and nothing else, also no default."""
    return isinstance(value, str) and re.fullmatch(r"\$\{oc\.env:[^,{}]*\}", value.strip()) is not None


def _reads(name: str, tree: Any, seen: set[str]) -> bool:
    if name.startswith(".") or "[" in name:
        return True  # not followed: rather too little is stored than too much
    if name in seen:
        return False
    seen.add(name)
    found = tree
    for part in name.split("."):
        if not isinstance(found, dict) or part not in found:
            return False
        found = found[part]
    return comes_from_environment(found, tree, seen)
