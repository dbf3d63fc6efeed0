"""`whet report`: a run as one HTML file that needs nothing else: curves, table, findings, best and worst samples.

Every text is escaped, with control characters made visible; the file has no script.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from whet.board.filters import Filters, Page
from whet.board.labels import Labels
from whet.board.samples import Samples
from whet.board.settings import compare
from whet.checkpoint.durable import write_text
from whet.doctor.examine import Diagnosis, examine_run
from whet.errors import UserError
from whet.plots.chart import lay_out
from whet.plots.curves import PANELS, RunData, panels
from whet.plots.picture import Plot
from whet.plots.runs import as_arms, read_run
from whet.tracking.lines import visible
from whet.tracking.status import read_status

_SAMPLES = 5  # best, and worst
_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
svg { width: 100%; min-width: 36rem; max-width: 48rem; height: auto; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .2rem .8rem .2rem 0; vertical-align: top; }
td { overflow-wrap: anywhere; font-variant-numeric: tabular-nums; } .numbers td { white-space: nowrap; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; max-height: 20rem; overflow: auto; border: 1px solid #8886;
  padding: .5rem; } .quiet { opacity: .7; } article { margin: 1.5rem 0; } .wide { overflow-x: auto; }
"""


def write_report(folder: Path, out: Path | None, language: str = "en") -> Path:
    """Write the report of a run, to report.html in its folder where no file is named; return its path."""
    run = read_run(folder)
    file = out or run.folder / "report.html"
    try:
        write_text(file, to_html(run, Labels(language)))
    except OSError as error:
        raise UserError(f"{file}: cannot be written: {error.strerror or error}") from error
    return file


def to_html(run: RunData, say: Labels | None = None) -> str:
    """Return the page of a run."""
    say = say or Labels()
    found = examine_run(run.folder, run.metrics, run.settings)
    steps = run.metrics[-1]["step"]
    state = f"{_text(os.path.basename(run.folder))}: {say(read_status(run.folder))}, {say('step')} {steps}"
    parts = [
        f"<h1>{_text(run.name)}</h1>",
        f'<p class="quiet">{state}</p>',
        f"<h2>{say('Findings')}</h2>",
        *(_finding(each, say) for each in found),
        "" if found else f"<p>{say('None.')}</p>",
        f"<h2>{say('Curves')}</h2>",
        _curves(run, say),
        f"<h2>{say('Numbers')}</h2>",
        _numbers(run, say),
        *_samples(run.folder, say),
        f"<h2>{say('Config')}</h2>",
        _config(run.folder, say),
    ]
    head = (
        f'<!doctype html>\n<html lang="{say.language}"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(run.name)}</title><style>{_STYLE}</style></head><body>"
    )
    return "\n".join([head, *parts, "</body></html>\n"])


def _text(text: str) -> str:
    return escape(visible(text))


def _curves(run: RunData, say: Labels) -> str:
    charts = panels(as_arms([run]))
    if not charts:
        return f"<p>{say('No metric that is drawn by itself was logged.')}</p>"
    return f'<div class="wide" tabindex="0">{Plot(lay_out(charts)).svg}</div>'


def _numbers(run: RunData, say: Labels) -> str:
    """Return first, lowest, highest and last value of the metrics that are drawn."""
    rows = []
    for name in dict.fromkeys(name for _, *both in PANELS for name in both if name):
        values = [y for _, y in run.curve(name) if math.isfinite(y)]
        if values:
            rows.append([name, *(f"{y:.4g}" for y in (values[0], min(values), max(values), values[-1]))])
    return _table([say(name) for name in ("metric", "first", "lowest", "highest", "last")], rows, "numbers")


def _finding(diagnosis: Diagnosis, say: Labels) -> str:
    finding = diagnosis.finding
    until = f"–{diagnosis.until}" if diagnosis.until != finding.step else ""
    when = f"{say('step')} {finding.step}{until}" if finding.step else say("before the first step")
    rows = [[name, *(f"{step}: {value:.4g}" for step, value in points)] for name, points in diagnosis.evidence.items()]
    table = _table([], rows) if rows else ""
    sentence = _text(finding.sentence)
    return f"<article><strong>{_text(finding.rule)}</strong>, {when}<p>{sentence}</p>{table}</article>"


def _samples(folder: Path, say: Labels) -> list[str]:
    """Return the best and the worst samples of the last step that has samples, of validation where there is one."""
    samples = Samples(use_duckdb=False)  # one file
    for split in ("val", "train"):
        known = samples.steps(folder, split)
        if known["steps"]:
            break
    else:
        return [f"<h2>{say('Samples')}</h2>", f"<p>{say('The run kept none (trainer.log_samples).')}</p>"]
    step = known["steps"][-1]
    parts = []
    for title, descending in (("Best samples", True), ("Worst samples", False)):
        page = Page("reward", descending, 0, _SAMPLES)
        rows = samples.query(folder, split, Filters(step=step), page)["rows"]
        heading = f"{say(title)}: {say('step')} {step} ({say(split)})"
        parts += [f"<h2>{heading}</h2>", *(_sample(row, say) for row in rows)]
    return [*parts, *(f"<p>{_text(each)}</p>" for each in known["damaged"])]


def _sample(row: Mapping[str, Any], say: Labels) -> str:
    scores = ", ".join(f"{name} {value:.4g}" for name, value in row["scores"].items())
    reward = say("no score") if row["reward"] is None else f"{say('reward')} {row['reward']:.4g}"
    facts = f"{reward}{', ' + scores if scores else ''}, {row['length']} {say('tokens')}, {row['finish']}"
    texts = ""
    for name in ("prompt", "response", "answer"):
        more = " …" if row[f"{name}_chars"] > len(row[name]) else ""
        texts += f"<p class=quiet>{say(name)}</p><pre>{_text(row[name])}{more}</pre>"
    return f"<article><strong>{_text(row['uid'])}</strong>: {_text(facts)}{texts}</article>"


def _config(folder: Path, say: Labels) -> str:
    rows = [[row["key"], row["value"], row["default"] or "–"] for row in compare(folder, None) if row["changed"]]
    head = [say(name) for name in ("key", "value", "default")]
    return _table(head, rows) if rows else f"<p>{say('The run has no config.yaml.')}</p>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> str:
    first = "<tr>" + "".join(f"<th>{_text(name)}</th>" for name in head) + "</tr>" if head else ""
    body = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide {kind}" tabindex="0"><table>{first}{body}</table></div>'
