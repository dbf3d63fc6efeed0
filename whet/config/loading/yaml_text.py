"""Check a YAML text before anything is built from it.

PyYAML builds nested collections by recursion and lets an alias stand for any number of copies; OmegaConf copies what
aliases share. A text of one kilobyte can so end in a stack overflow or fill the memory. The events of the parser come
one after the other and cost nothing of this.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from whet.config.loading.interpolation import syntax_problem
from whet.config.texts import printable
from whet.config.values import show
from whet.errors import UserError

MOST_BYTES = 1 << 20
MOST_NODES = 4_000  # values once aliases are replaced by what they stand for; a whole config has some 300
DEEPEST = 50
LONGEST_NUMBER = 100
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where PyYAML was built with libyaml
NUMBER = re.compile(r"[-+.]?[0-9][-+0-9_.:,a-fA-FxXoObBeE]*")
TAG = "tag:yaml.org,2002:"
TAGGED = {
    "str": re.compile(r"(?s).*"),
    "int": re.compile(r"[-+]?(0|[1-9][0-9]*)"),
    "float": re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"),
    "bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    "null": re.compile(r"null|Null|NULL|~|"),
    "map": None,
    "seq": None,
}


def check_yaml(text: str, where: str) -> None:
    """Raise a `UserError` for a YAML text that is too large, too deep, or has numbers or tags no key can take.

    `where` begins the sentence: a file's path, or a key and its value. Errors of syntax are left to who parses it.
    """
    if len(text.encode("utf-8", "replace")) > MOST_BYTES:
        raise UserError(f"{where}: is larger than {MOST_BYTES >> 20} MB, which is no config")
    try:
        _check_events(yaml.parse(text, Loader=LOADER), where)
    except (yaml.YAMLError, ValueError):  # the caller's parser says it better
        return


def _check_events(events: Iterator[yaml.Event], where: str) -> None:
    sizes: dict[str, int] = {}  # values that an alias stands for
    open_: list[tuple[str | None, int]] = []  # collections: their anchor, and the count at their beginning
    count = 0
    for event in events:
        line = f"{where}, line {event.start_mark.line + 1}" if event.start_mark else where
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes and any(anchor == event.anchor for anchor, _ in open_):
                raise UserError(f"{line}: *{event.anchor} stands inside what it names; write the value out")
            count += sizes.get(event.anchor, 1)
        elif isinstance(event, yaml.NodeEvent):
            count += 1
            _check_node(event, line)
            if isinstance(event, yaml.ScalarEvent):
                if event.anchor:
                    sizes[event.anchor] = 1
            else:
                sizes.pop(event.anchor or "", None)
                open_.append((event.anchor, count - 1))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, begin = open_.pop()
            if anchor:
                sizes[anchor] = count - begin
        if len(open_) > DEEPEST:
            raise UserError(f"{line}: is nested more than {DEEPEST} levels deep; no key needs that")
        if count > MOST_NODES:
            raise UserError(f"{line}: holds more than {MOST_NODES:,} values, aliases written out; no config needs that")


def _check_node(event: Any, line: str) -> None:
    problem = syntax_problem(event.value) if isinstance(event, yaml.ScalarEvent) else None
    if problem:
        raise UserError(f"{line}: {show(event.value)} {problem}")
    is_long = isinstance(event, yaml.ScalarEvent) and event.implicit[0] and len(event.value) > LONGEST_NUMBER
    if is_long and NUMBER.fullmatch(event.value):
        raise UserError(f"{line}: holds a number of {len(event.value)} characters; shorten it, or put it in quotes")
    tag = event.tag
    if tag is None or tag == "!":
        return
    name = tag.removeprefix(TAG)
    if not tag.startswith(TAG) or name not in TAGGED:
        raise UserError(f"{line}: the tag {printable(tag)[:80]} is not used in configs; remove it")
    form = TAGGED[name]
    if isinstance(event, yaml.ScalarEvent) == (form is None):
        raise UserError(f"{line}: the tag !!{name} does not go with its value; remove it")
    if form is not None and not (form.fullmatch(event.value) and (name == "str" or len(event.value) <= LONGEST_NUMBER)):
        raise UserError(f"{line}: {printable(event.value)[:80]} is no {name}, as the tag !!{name} says; remove it")
