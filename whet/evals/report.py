"""A report of evaluated data sets: Markdown for people, CSV and JSON for programs, and two plots."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whet.checkpoint.durable import replacing, write_text
from whet.evals.plots import bar_chart, line_chart
from whet.evals.results import Group, Result
from whet.evals.statistics import Estimate

NOT_SHARES = ("length", "reward")  # metrics that are no share of 1
ABOUT = ("no_answer", "cut_off", "length")  # what is said of responses besides their scores


def write_report(folder: Path, about: dict[str, str], results: Sequence[Result]) -> Path:
    """Write every file of the report; returns the Markdown one."""
    write_text(folder / "report.json", json.dumps(as_json(about, results), indent=2, ensure_ascii=False) + "\n")
    with replacing(folder / "scores.csv") as side, side.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(as_rows(results))
    plots = _plots(folder, results)
    write_text(folder / "report.md", as_markdown(about, results, plots))
    return folder / "report.md"


def as_json(about: dict[str, str], results: Sequence[Result]) -> dict[str, Any]:
    """The report as plain values."""
    return {
        "about": about,
        "datasets": {
            each.dataset.name: {
                **_group_json(each.total),
                "failed": each.failed,
                "by": {column: {g.name: _group_json(g) for g in groups} for column, groups in each.by_column.items()},
            }
            for each in results
        },
    }


def as_rows(results: Sequence[Result]) -> list[list[Any]]:
    """The report as a table with a row for each number."""
    rows: list[list[Any]] = [
        ["dataset", "column", "value", "questions", "samples", "metric", "mean", "low", "high"],
    ]
    for each in results:
        groups = [("", each.total), *((column, g) for column, some in each.by_column.items() for g in some)]
        for column, group in groups:
            for name, value in group.metrics.items():
                place = [each.dataset.name, column, group.name, group.questions, group.samples]
                rows.append([*place, name, value.mean, value.low, value.high])
    return rows


def as_markdown(about: dict[str, str], results: Sequence[Result], plots: Sequence[str]) -> str:
    """The report for people."""
    lines = ["# Evaluation", "", *_table(["", ""], [[name, _cell(value)] for name, value in about.items()]), ""]
    rows = []
    for each in results:
        name, accuracy = each.accuracy
        metrics = each.total.metrics
        rows.append(
            [
                _cell(each.dataset.name),
                str(each.total.questions),
                f"{name}: {shown(name, accuracy)}",
                _last(metrics, "pass@"),
                _last(metrics, "maj@"),
                shown("cut_off", metrics["cut_off"]),
                str(each.failed),
            ]
        )
    lines += _table(["data set", "questions", "average", "pass@k", "majority", "cut off", "failed"], rows)
    lines += ["", *(f"![{name.removesuffix('.svg').replace('_', ' ')}]({name})" for name in plots)]
    for each in results:
        lines += ["", f"## {each.dataset.name}", "", *_metrics_table(each.total)]
        for column, groups in each.by_column.items():
            lines += ["", f"### {each.dataset.name} by {_cell(column)}", "", *_groups_table(column, groups)]
    return "\n".join(lines).rstrip() + "\n"


def shown(name: str, value: Estimate) -> str:
    """A number for people: shares in percent, with their interval."""
    if name in NOT_SHARES:
        text = [f"{each:.3g}" if each is not None else "" for each in (value.mean, value.low, value.high)]
    else:
        text = [f"{100 * each:.1f}" if each is not None else "" for each in (value.mean, value.low, value.high)]
    unit = "" if name in NOT_SHARES else " %"
    return f"{text[0]}{unit}" + (f" [{text[1]}, {text[2]}]" if value.low is not None else "")


def _metrics_table(group: Group) -> list[str]:
    rows = [[_cell(name), shown(name, value)] for name, value in group.metrics.items()]
    return _table(["metric", f"{group.questions} questions, {group.samples} samples"], rows)


def _groups_table(column: str, groups: Sequence[Group]) -> list[str]:
    names = list(dict.fromkeys(name for group in groups for name in group.metrics if name not in ABOUT))
    names = [name for name in names if not re.fullmatch(r"pass@\d+", name) or name == _largest(names, "pass@")]
    names = [name for name in names if not re.fullmatch(r"maj@\d+", name) or name == _largest(names, "maj@")]
    rows = [
        [
            _cell(group.name),
            str(group.questions),
            *(shown(name, group.metrics[name]) if name in group.metrics else "" for name in names),
        ]
        for group in groups
    ]
    return _table([_cell(column), "questions", *names], rows)


def _largest(names: Sequence[str], prefix: str) -> str:
    return max((name for name in names if name.startswith(prefix)), key=lambda name: int(name.partition("@")[2]))


def _last(metrics: dict[str, Estimate], prefix: str) -> str:
    names = [name for name in metrics if name.startswith(prefix)]
    return f"{names[-1]}: {shown(names[-1], metrics[names[-1]])}" if names else ""


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *rows)]


def _cell(text: str) -> str:
    """Text that stays in its cell."""
    return re.sub(r"\s+", " ", str(text)).replace("|", "\\|").replace("<", "&lt;")


def _group_json(group: Group) -> dict[str, Any]:
    metrics = {name: {"mean": v.mean, "low": v.low, "high": v.high} for name, v in group.metrics.items()}
    return {"questions": group.questions, "samples": group.samples, "metrics": metrics}


def _plots(folder: Path, results: Sequence[Result]) -> list[str]:
    bars = [(each.dataset.name, each.accuracy[1]) for each in results]
    write_text(folder / "accuracy.svg", bar_chart("Average accuracy", bars))
    curves = {}
    for each in results:
        points = [(int(k.partition("@")[2]), v) for k, v in each.total.metrics.items() if k.startswith("pass@")]
        if len(points) > 1:
            curves[each.dataset.name] = points
    if not curves:
        return ["accuracy.svg"]
    write_text(folder / "pass_at_k.svg", line_chart("pass@k", curves))
    return ["accuracy.svg", "pass_at_k.svg"]
