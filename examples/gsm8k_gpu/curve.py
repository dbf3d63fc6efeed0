"""The course of a run as CSV and PNG: accuracy of samples and of validations over minutes since the program began."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from evaluate import Score, wilson

from whet.tracking import read_metrics


@dataclass(frozen=True, slots=True)
class Point:
    """A moment of the run; what was not measured then is None."""

    minute: float
    what: str  # before, warm-up, step 12, end
    samples: float | None = None  # accuracy at temperature 1 on training problems
    greedy: float | None = None  # greedy accuracy on the test problems
    low: float | None = None
    high: float | None = None


def scored(minute: float, what: str, score: Score) -> Point:
    """An evaluation."""
    return Point(minute, what, greedy=score.accuracy, low=score.interval[0], high=score.interval[1])


def training_points(run: Path, ended: float, problems: int) -> list[Point]:
    """Steps and validations of a run folder whose last step ended so many minutes into the program."""
    lines = read_metrics(run / "metrics.jsonl")
    left = [(line.get("timing_s/step", 0.0) + line.get("timing_s/validate", 0.0)) / 60 for line in lines]
    points = []
    for i, line in enumerate(lines):
        accuracy = line.get("val/accuracy")
        low, high = (None, None) if accuracy is None else wilson(round(accuracy * problems), problems)
        minute = ended - sum(left[i + 1 :])
        points.append(Point(minute, f"step {line['step']}", line.get("reward/accuracy"), accuracy, low, high))
    return points


def write_csv(points: Iterable[Point], path: Path) -> None:
    """One row a point."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Point.__slots__)
        for point in points:
            writer.writerow([_short(getattr(point, name)) for name in Point.__slots__])


def read_csv(path: Path) -> list[Point]:
    """What `write_csv` wrote."""
    with path.open(newline="") as file:
        return [
            Point(float(row["minute"]), row["what"], *(float(row[k]) if row[k] else None for k in Point.__slots__[2:]))
            for row in csv.DictReader(file)
        ]


def _short(value: float | str | None) -> float | str | None:
    return round(value, 5) if isinstance(value, float) else value


def write_png(courses: dict[str, Sequence[Point]], path: Path) -> None:
    """Greedy accuracy with its interval, and the accuracy of samples behind it; one colour a program."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    for i, (name, points) in enumerate(courses.items()):
        sampled = [(p.minute, 100 * p.samples) for p in points if p.samples is not None]
        axes.plot(*zip(*sampled) if sampled else ((), ()), color=f"C{i}", alpha=0.3, linewidth=1)
        greedy = [(p.minute, 100 * p.greedy, 100 * p.low, 100 * p.high) for p in points if p.greedy is not None]
        minutes, middle, low, high = zip(*greedy)
        axes.plot(minutes, middle, "o-", color=f"C{i}", label=name, markersize=4)
        axes.fill_between(minutes, low, high, color=f"C{i}", alpha=0.15, linewidth=0)
    axes.set_xlabel("minutes since the program began")
    axes.set_ylabel("problems solved, %")
    axes.set_title("SmolLM2-135M on GSM8K: test problems, greedy (faint: training samples)", fontsize=10)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
