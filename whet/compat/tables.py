"""`python -m whet.compat.tables SYSTEM > docs/coming-from/keys-SYSTEM.md` writes the page of a system's keys anew."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from whet.compat.keys.row import Kind, Row, Table
from whet.compat.keys.tables import TABLES
from whet.compat.names import newer_name
from whet.compat.systems import system_of
from whet.compat.trees import Flat, resolved, tree
from whet.config.schema import all_keys
from whet.config.values import show
from whet.errors import UserError

Shown = tuple[Row, str]  # a row with its default as the page shows it
_TRAINING = (
    "verl_main_ppo", "verl_megatron", "verl_dapo", "verl_one_step_off", "verl_fully_async", "verl_transfer_queue",
    "verl_gsm8k_multiturn_grpo_server", "verl_newer", "verl_added", "verl_older",
)  # fmt: skip
# Tables of each page: title, name of the rows, and the default trees; of a key in several the first counts.
PAGES: dict[str, tuple[tuple[str, str, tuple[str, ...]], ...]] = {
    "verl": (
        ("Training: main_ppo, main_dapo and the asynchronous mains", "verl", _TRAINING),
        ("Supervised: fsdp_sft_trainer and sft_trainer", "sft", ("verl_fsdp_sft", "verl_sft", "verl_sft_newer")),
        ("Generation: main_generation", "generation", ("verl_generation",)),
        ("Evaluation: main_eval", "eval", ("verl_eval",)),
    ),
    "easyr1": (("Training: verl.trainer.main", "easyr1", ("easyr1_main", "easyr1_config", "easyr1_older")),),
    "vppo": (("Training: verl.trainer.main", "vppo", ("vppo_main", "vppo_config")),),
    "or1": (
        ("Training: main_ppo", "or1", ("or1_main_ppo", "or1_megatron")),
        ("Supervised: fsdp_sft_trainer", "sft", ("or1_fsdp_sft",)),
        ("Generation: main_generation", "generation", ("or1_generation",)),
        ("Evaluation: main_eval", "eval", ("or1_eval",)),
    ),
}


def page(name: str) -> str:
    """Return the text of a system's page of keys."""
    system = system_of(name)
    lines = [
        f"# Keys of {system.title}",
        "",
        f"<!-- Written by `python -m whet.compat.tables {name} > docs/coming-from/keys-{name}.md`; "
        "a test compares the two. -->",
        "",
        f"Every key of {system.title}, as `whet as`, `whet check --as` and `whet migrate` read it: mapped to a key",
        "of whet, without effect, or not here and refused with what to do, unless its value asks for nothing. A `*`",
        "stands for any text. Where a command leaves a mapped key out, the other system's default applies.",
    ]
    for title, table, trees in PAGES[name]:
        lines += ["", f"## {title}"]
        lines += _sections(_rows(TABLES[table], _defaults(trees)))
    return "\n".join(lines) + "\n"


def _defaults(trees: tuple[str, ...]) -> Flat:
    made: Flat = {}
    for name in reversed(trees):
        made |= (
            tree(name) if name in ("verl_newer", "verl_added", "verl_older", "verl_sft_newer") else resolved(tree(name))
        )
    return made


def _rows(table: Table, defaults: Flat) -> list[Shown]:
    """Return the rows that speak of a key of the system, each with its default there, empty for patterns."""
    found: dict[str, Shown] = {}
    used = {id(table.find(newer_name(key))) for key in defaults}
    for row in table.rows:
        if row.key not in found and (id(row) in used or _above(row, defaults)):
            found[row.key] = (row, f"`{_cell(show(defaults[row.key]))}`" if row.key in defaults else "")
    return list(found.values())


def _above(row: Row, defaults: Flat) -> bool:
    """Return True if a row names a section of the system's keys."""
    return not row.is_pattern and any(fnmatchcase(key, f"{row.key}.*") for key in defaults)


def _sections(rows: list[Shown]) -> Iterator[str]:
    yield from ("", "### Mapped", "", "| key | default | here | default here | how |", "|---|---|---|---|---|")
    for group in _groups(rows, Kind.MAPPED):
        row = group[0][0]
        here = _lines("the same" if [to] == [each.key for each, _ in group] else f"`{to}`" for to in row.to)
        own = _lines(f"`{_cell(show(all_keys()[to].default))}`" if to in all_keys() else "" for to in row.to)
        yield f"{_keys(group)} {here} | {own} | {_cell(row.says)} |"
    for kind, title, column in (
        (Kind.HARMLESS, "No effect here", "why"),
        (Kind.ABSENT, "Not here", "what to do"),
    ):
        groups = list(_groups(rows, kind))
        if groups:
            yield from ("", f"### {title}", "", f"| key | default | {column} |", "|---|---|---|")
        for group in groups:
            yield f"{_keys(group)} {_cell(group[0][0].says)} |"


def _groups(rows: list[Shown], kind: Kind) -> Iterator[list[Shown]]:
    """Yield rows of a kind; neighbours with the same sentence, of which several decide together, as one group."""
    own = [(row, default) for row, default in rows if row.kind is kind]
    for _, group in itertools.groupby(own, lambda each: _together(each[0])):
        yield list(group)


def _together(row: Row) -> tuple[object, ...]:
    alone = row.kind is Kind.MAPPED and not row.rule
    return (row.key,) if alone else (row.to, row.says, row.rule)


def _keys(group: list[Shown]) -> str:
    return f"| {_lines(f'`{row.key}`' for row, _ in group)} | {_lines(default for _, default in group)} |"


def _lines(cells: Iterable[str]) -> str:
    found = list(cells)
    return "<br>".join(found) if any(found) else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    try:
        print(page(sys.argv[1] if len(sys.argv) > 1 else ""), end="")
    except UserError as problem:
        sys.exit(str(problem))
