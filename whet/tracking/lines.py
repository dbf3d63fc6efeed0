"""The console's lines: which metrics a person wants to see, in columns that the eye can follow."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.cells import cell_len, chop_cells
from rich.table import Table
from rich.text import Text

from whet.tracking.progress import duration
from whet.types import Sample

KL = ("actor/kl_loss", "actor/reward_kl")  # to the reference; the first that the run computes
STAGES = {
    "timing_s/rollout": "rollout",
    "timing_s/reward": "reward",
    "timing_s/old_log_probs": "old",
    "timing_s/ref_log_probs": "ref",
    "timing_s/update": "update",
}
IDLE = {
    "async/learner_idle": "learner",
    "async/sampler_idle": "sampler",
    "async/rewards_idle": "rewards",
}
JOINERS = "\u200c\u200d"  # format marks that ordinary text needs: Persian, Hindi, composed emoji
VALIDATION_KNOWN = ("val/reward", "val/accuracy", "val/response_length_mean", "val/failed")
VALIDATION_FILES = ("val/env/", "val/turns/")  # too many for a line: metrics.jsonl has them


@dataclass(frozen=True, slots=True)
class Field:
    """One piece of a line; on a narrow terminal the pieces with the highest `rank` are left out first."""

    text: Text
    rank: int


def step_fields(step: int, total: int, metrics: Mapping[str, float], left: float | None = None) -> list[Field]:
    """The fields of a step's line; a metric that the run does not compute is left out.

    `left` is the time until the end of the run, in seconds.
    """
    kl = next((name for name in KL if name in metrics), KL[0])
    idle = [f"{short} {metrics[name]:.0%}" for name, short in IDLE.items() if name in metrics]
    stages = [f"{short} {metrics[name]:.1f}" for name, short in STAGES.items() if name in metrics]
    fields = [
        (0, _head("step", step, total, "bold cyan")),
        (1, _number("loss", metrics, "actor/loss", "{:7.4f}")),
        (1, _number("reward", metrics, "reward/overall", "{:6.3f}")),
        (2, _number("acc", metrics, "reward/accuracy", "{:6.1%}")),
        (4, _number("len", metrics, "response_length/mean", "{:4.0f}")),
        (7, _number("turns", metrics, "turns/mean", "{:4.1f}")),
        (7, _number("kl", metrics, kl, "{:6.4f}")),
        (8, _number("entropy", metrics, "actor/entropy", "{:4.2f}")),
        (6, _number("grad", metrics, "actor/grad_norm", "{:5.2f}")),
        (5, _number("", metrics, "timing_s/step", "{:5.1f}s")),
        (8, _number("stale", metrics, "async/staleness_mean", "{:4.2f}")),
        (10, Text(f"({' '.join(stages)})", "dim") if stages else None),
        (11, Text(f"(idle: {', '.join(idle)})", "dim") if idle else None),
        (9, _number("", metrics, "perf/tokens_per_s", "{:7,.0f} tok/s")),
        (11, Text.assemble((duration(left), ""), (" left", "dim")) if left is not None else None),
        (3, _trouble("rewards failed", metrics, "reward/failed")),
        (3, _trouble("environments failed", metrics, "env/failed")),
        (3, _trouble("updates skipped", metrics, "actor/grad_skipped")),
    ]
    return [Field(text, rank) for rank, text in fields if text is not None]


def validation_fields(step: int, total: int, metrics: Mapping[str, float]) -> list[Field]:
    """The fields of a validation's line: reward, accuracy, length, then avg@k, pass@k and other scores."""
    texts = [
        _head("val", step, total, "bold magenta"),
        _number("reward", metrics, "val/reward", "{:6.3f}"),
        _number("acc", metrics, "val/accuracy", "{:6.1%}"),
        _number("len", metrics, "val/response_length_mean", "{:4.0f}"),
        _number("turns", metrics, "val/turns/mean", "{:4.1f}"),
        _trouble("rewards failed", metrics, "val/failed"),
        _trouble("environments failed", metrics, "val/env/failed"),
    ]
    for name in metrics:
        if not name.startswith("val/") or name.startswith(VALIDATION_FILES):
            continue
        if name not in VALIDATION_KNOWN and not _repeats_accuracy(name, metrics):
            form = "{:6.1%}" if "@" in name else "{:6.3f}"
            texts.append(_number(visible(name.removeprefix("val/")), metrics, name, form))
    texts.append(_number("", metrics, "timing_s/validate", "{:5.1f}s"))
    return [Field(text, rank) for rank, text in enumerate(texts) if text is not None]


def _repeats_accuracy(name: str, metrics: Mapping[str, float]) -> bool:
    """Return True for avg@k and pass@1 where they are the accuracy once more."""
    again = name.startswith("val/avg@") or name == "val/pass@1"
    return again and math.isclose(metrics[name], metrics.get("val/accuracy", math.nan), abs_tol=1e-9)


def line(fields: Sequence[Field], width: int | None) -> Text:
    """The fields that fit on one line of a terminal, or all of them where there is no width to fit."""
    kept = list(fields)
    while width is not None and len(kept) > 1 and sum(field.text.cell_len + 2 for field in kept) - 2 > width:
        kept.remove(max(kept, key=lambda field: field.rank))
    return Text("  ").join(field.text for field in kept)


def done_lines(
    step: int,
    total: int,
    folder: Path,
    seconds: float | None,
    before: Mapping[str, float],
    after: Mapping[str, float],
    resume: str | None,
) -> list[Text]:
    """Closing lines: validation before → after, where the run is, how to go on; `seconds` None if it was finished."""
    if seconds is None:
        lines = [Text.assemble(("nothing was trained", "bold"), f": this run has finished, at step {step}")]
    else:
        headline = "finished" if step >= total else "stopped"
        count = f" after {step} of {total} steps" if total else ""
        lines = [Text.assemble((headline, "bold"), f"{count} in {duration(seconds)}")]
    shown = [("val/accuracy", "accuracy", "{:.1%}"), ("val/reward", "reward", "{:.3f}"), ("val/loss", "loss", "{:.4f}")]
    for name, label, form in shown:
        if name in before and name in after:
            change = f"{form.format(before[name])} → {form.format(after[name])}"
            lines.append(Text.assemble((f"  {label:<11}", "dim"), (change, "bold green"), ("  on validation", "dim")))
    lines.append(Text.assemble(("  run folder ", "dim"), str(folder)))
    if resume is not None:
        label = "resume" if seconds is not None else "more steps"
        lines.append(Text.assemble((f"  {label:<11}", "dim"), visible(resume)))
    return lines


def generations(samples: Sequence[Sample], width: int) -> Table:
    """A table of generations, each cut to about three lines of its column."""
    answer_width = max(6, min(16, width // 6))
    score_width = 7
    room = width - answer_width - score_width - 10  # what borders and padding leave
    prompt_width = max(10, room * 2 // 5)
    response_width = max(10, room - prompt_width)
    table = Table(box=box.SIMPLE_HEAD, leading=1, pad_edge=False, header_style="dim")
    table.add_column("prompt", width=prompt_width, overflow="fold")
    table.add_column("response", width=response_width, overflow="fold")
    table.add_column("answer", width=answer_width, overflow="fold")
    table.add_column("score", width=score_width, justify="right", no_wrap=True)
    for sample in samples:
        score = sample.score("overall")
        table.add_row(
            Text(_cut(sample.prompt.text, 5 * prompt_width // 2, keep_head=0.0)),
            Text(_cut(sample.text, 5 * response_width // 2, keep_head=0.4)),
            Text(_cut(str(sample.prompt.answer), 5 * answer_width // 2, keep_head=1.0)),
            Text(sample.failure or "none" if score is None else f"{score:.2f}"),
        )
    return table


def visible(text: str, newline: str = "\n") -> str:
    """Text that cannot move the cursor, change colours or reorder the line: such characters become a visible mark."""
    return "".join(newline if char == "\n" else _visible(char) for char in text.replace("\r\n", "\n"))


def _visible(char: str) -> str:
    if char == "\t":
        return " "
    if char in JOINERS:
        return char
    # Cc: control characters, ESC among them; Cf: invisible format marks, right-to-left overrides among them;
    # Cs: half surrogate pairs, which no terminal encoding can hold; Zl, Zp: line breaks in disguise.
    return "\N{REPLACEMENT CHARACTER}" if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") else char


def _cut(text: str, cells: int, keep_head: float) -> str:
    """Cut to so many terminal cells, keeping that share of the head and the rest of the tail."""
    flat = visible(text.strip(), newline="⏎")
    if cell_len(flat) <= cells:
        return flat
    head = int((cells - 1) * keep_head)
    tail = cells - 1 - head
    start = chop_cells(flat, head)[0] if head else ""
    end = chop_cells(flat[::-1], tail)[0][::-1] if tail else ""
    return f"{start}…{end}"


def _head(word: str, step: int, total: int, style: str) -> Text:
    place = f"{step:>{len(str(total))}}/{total}" if total else str(step)
    return Text(f"{word:<4} {place}", style)


def _number(label: str, metrics: Mapping[str, float], name: str, form: str) -> Text | None:
    if name not in metrics:
        return None
    value = 0.0 if abs(metrics[name]) < 5e-5 else metrics[name]  # a KL of -1e-9 would print as -0.0000
    style = "" if math.isfinite(value) else "bold red"
    return Text.assemble((f"{label} " if label else "", "dim"), (form.format(value), style))


def _trouble(label: str, metrics: Mapping[str, float], name: str) -> Text | None:
    value = metrics.get(name, 0)
    return Text(f"{label} {value:g}", style="bold yellow") if value else None
