"""Which config keys the package reads: a search of its syntax trees by the type of the section that is read from.

Types are followed through annotated parameters and attributes, assignments and chains such as `config.worker.actor`.
Where the type of an expression is not known (`getattr(config.worker, part).fsdp`), an access counts for every section
that has a key of that name.
"""

from __future__ import annotations

import ast
import functools
import typing
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

from whet.config.schema import Config

Read = tuple[str, str]  # name of the section's class, name of the key


@functools.cache
def sections() -> dict[str, dict[str, str]]:
    """Return the fields of every section by the name of its class: the class of a section below, or ""."""
    found: dict[str, dict[str, str]] = {}

    def visit(cls: type) -> None:
        hints = typing.get_type_hints(cls)
        found[cls.__name__] = {}
        for each in fields(cls):
            below = hints[each.name]
            is_section = isinstance(below, type) and is_dataclass(below)
            found[cls.__name__][each.name] = below.__name__ if is_section else ""
            if is_section:
                visit(below)

    visit(Config)
    return found


class _Reads(ast.NodeVisitor):
    """Collects reads of one file."""

    def __init__(self, attributes: dict[str, set[str]]) -> None:
        self.found: set[Read] = set()
        self._sections = sections()
        self._keys = set().union(*self._sections.values())
        self._attributes = attributes
        self._names: dict[str, set[str]] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        before, self._names = self._names, dict(self._names)
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for argument in arguments:
            self._names[argument.arg] = self._annotated(argument.annotation)
        for _ in range(2):  # a name may be used before the line that says what it is
            self.generic_visit(node)
        self._names = before

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self._bind(target, node.value)

    def visit_For(self, node: ast.For) -> None:
        if isinstance(node.target, ast.Name) and isinstance(node.iter, ast.List | ast.Tuple):
            kinds = [self._type(each.value if isinstance(each, ast.Starred) else each) for each in node.iter.elts]
            self._names[node.target.id] = set().union(*kinds) if all(kinds) else set()
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load) and node.attr in self._keys:
            for name in self._type(node.value) or self._sections:
                if node.attr in self._sections.get(name, {}):
                    self.found.add((name, node.attr))
        self.generic_visit(node)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for each, part in zip(target.elts, value.elts):
                self._bind(each, part)
        elif isinstance(target, ast.Name):
            self._names[target.id] = self._type(value)

    def _type(self, node: ast.expr) -> set[str]:
        """Return the sections that an expression may be; none if nothing is known."""
        if isinstance(node, ast.Name):
            return self._names.get(node.id, set())
        if isinstance(node, ast.Attribute):
            of = self._type(node.value)
            if of:
                return {self._sections[each].get(node.attr, "") for each in of} - {""}
            return self._attributes.get(node.attr, set())
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            if node.func.id in ("replace", "with_values", "sft_view", "generate_view", "eval_view"):
                return self._type(node.args[0])
            return {node.func.id} & self._sections.keys()
        return set()

    def _annotated(self, node: ast.expr | None) -> set[str]:
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} if node is not None else set()
        return names & self._sections.keys()


def _attributes(trees: Iterable[ast.Module]) -> dict[str, set[str]]:
    """Return the sections that attributes of a name hold, as the schema and annotations of classes say."""
    known = sections()
    found: dict[str, set[str]] = {}
    for keys in known.values():
        for key, below in keys.items():
            if below:
                found.setdefault(key, set()).add(below)

    def add(name: str, annotation: ast.expr | None) -> None:
        names = {each.id for each in ast.walk(annotation) if isinstance(each, ast.Name)} if annotation else set()
        if names & known.keys():
            found.setdefault(name.lstrip("_"), set()).update(names & known.keys())
            found.setdefault(f"_{name.lstrip('_')}", set()).update(names & known.keys())

    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                add(node.target.id, node.annotation)
            elif isinstance(node, ast.arg):
                add(node.arg, node.annotation)
    return found


def reads(files: Iterable[Path]) -> set[Read]:
    """Return every key that these files read, as (class of its section, name)."""
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    attributes = _attributes(trees)
    found: set[Read] = set()
    for tree in trees:
        visitor = _Reads(attributes)
        visitor.visit(tree)
        found |= visitor.found
    return found


def declared() -> Iterator[Read]:
    """Yield every key of the schema."""
    for name, keys in sections().items():
        yield from ((name, key) for key, below in keys.items() if not below)
