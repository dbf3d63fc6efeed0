"""Charts of runs: what is read from run folders, how seeds are put together, and that every format shows the same."""

from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageFont

from whet.errors import UserError
from whet.plots.chart import Drawing, Panel, Series, Text, lay_out, ticks
from whet.plots.curves import panels
from whet.plots.picture import Plot, to_svg
from whet.plots.png import to_png
from whet.plots.runs import as_arms, find_runs, read_run


def write_run(folder: Path, values: list[float], **settings: object) -> Path:
    """Write a run folder with a reward of these values, one a step, validated at the last."""
    folder.mkdir(parents=True)
    rows = [{"step": step, "reward/overall": y, "timing_s/step": 1.0} for step, y in enumerate(values, 1)]
    rows[-1]["val/reward"] = values[-1]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    keys = {"lr": 0.1, "seed": 1} | settings
    (folder / "config.yaml").write_text(
        f"worker:\n  actor:\n    optim:\n      lr: {keys['lr']}\ntrainer:\n  seed: {keys['seed']}\n"
    )
    return folder


def test_runs_of_several_seeds_are_one_arm_with_a_band(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        write_run(tmp_path / f"slow{seed}", [0.1 * seed, 0.2 * seed], lr=0.1, seed=seed)
    write_run(tmp_path / "fast", [0.5, 0.7], lr=0.9)
    arms = as_arms(find_runs(tmp_path))
    assert sorted((arm.name, len(arm.runs)) for arm in arms) == [("fast", 1), ("lr=0.1 (n=3)", 3)]
    charts = {
        panel.title: {series.name: series for series in panel.series} for panel in panels(arms, ["reward/overall"])
    }
    slow = charts["reward/overall"]["lr=0.1 (n=3)"]
    assert slow.points == [(1, pytest.approx(0.2)), (2, pytest.approx(0.4))]
    assert slow.band == [(1, pytest.approx(0.1), pytest.approx(0.3)), (2, pytest.approx(0.2), pytest.approx(0.6))]
    assert charts["reward/overall"]["fast"].band == []


def test_a_run_in_a_folder_of_its_own_has_its_name(tmp_path: Path) -> None:
    run = write_run(tmp_path / "mine", [0.1])
    with (run / "config.yaml").open("a") as config:
        config.write("  experiment_name: demo\n")
    assert read_run(run).name == "demo"
    with (run / "config.yaml").open("a") as config:
        config.write("  save_checkpoint_path: mine\n")
    assert read_run(run).name == "mine"


def test_training_is_thin_beside_validation_and_full_without(tmp_path: Path) -> None:
    (reward, seconds) = panels(as_arms([read_run(write_run(tmp_path / "run", [0.1, 0.2]))]))
    assert (reward.title, [series.faint for series in reward.series]) == ("reward", [True, False])
    assert (seconds.title, [series.faint for series in seconds.series]) == ("seconds a step", [False])


def test_every_format_holds_the_same_charts() -> None:
    drawing = lay_out([Panel("a < b & c", [Series("one", [(1, 2.0), (2, 3.0)]), Series("two", [(1, 1.0)], 1)])])
    svg = ET.fromstring(to_svg(drawing))
    texts = [element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert "a < b & c" in texts
    assert {"one", "two"} <= set(texts)
    light, dark = (Image.open(io.BytesIO(to_png(drawing, dark))).convert("RGB") for dark in (False, True))
    assert light.size == dark.size == (round(drawing.width) * 2, round(drawing.height) * 2)
    assert light.getpixel((0, 0)) == (255, 255, 255) != dark.getpixel((0, 0))
    blue = sum(1 for pixel in light.get_flattened_data() if pixel == (0x3B, 0x6E, 0xA8))
    assert blue > 100  # the line of the first series


@pytest.mark.parametrize("values", [[float("nan"), 1.0], [float("inf"), 2.0], [5.0], [0.0, 0.0], [1e300, -1e300], []])
def test_odd_numbers_are_drawn_or_left_out(values: list[float]) -> None:
    points = list(enumerate(values))
    drawing = lay_out([Panel("odd", [Series("x", points)])])
    ET.fromstring(to_svg(drawing))
    assert "nan" not in to_svg(drawing)
    assert to_png(drawing).startswith(b"\x89PNG")


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.1, 0.11), (-3, 1000), (5, 5), (1e-9, 2e-9), (-7e12, 3e12)])
def test_ticks_are_few_and_span_the_range(low: float, high: float) -> None:
    found = ticks(low, high)
    assert 2 <= len(found) <= 7
    assert found[0] <= low
    assert found[-1] >= high


def test_text_cannot_become_markup() -> None:
    name = "<script>alert(1)</script>\x00\x1b[31m"
    svg = to_svg(lay_out([Panel(name, [Series(name, [(1, 1.0), (2, 2.0)]), Series("other", [(1, 1.0)], 1)])]))
    assert "<script>" not in svg
    assert "\x00" not in svg
    ET.fromstring(svg)


def test_mistakes_are_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs" / "a", [0.1])
    with pytest.raises(UserError, match="no such run folder"):
        read_run(tmp_path / "nothing")
    with pytest.raises(UserError, match="it holds the runs a"):
        read_run(tmp_path / "runs")
    with pytest.raises(UserError, match="did you mean reward/overall"):
        panels(as_arms([read_run(run)]), ["reward/overal"])
    with pytest.raises(UserError, match=r"must end in .svg or .png"):
        Plot(lay_out([])).save(tmp_path / "x.gif")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "metrics.jsonl").write_text("")
    with pytest.raises(UserError, match="no metrics yet"):
        read_run(tmp_path / "empty")
    (run / "config.yaml").write_text("a: [")
    with pytest.raises(UserError, match=r"config.yaml: cannot be read"):
        read_run(run)


def test_a_page_has_everything_inside(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    from whet.plots.page import to_html

    write_run(tmp_path / "s1", [0.1, 0.2], seed=1)
    write_run(tmp_path / "s2", [0.3, 0.4], seed=2)
    page = to_html(panels(as_arms(find_runs(tmp_path))), "a <b> title")
    assert 'src="http' not in page
    assert "a &lt;b&gt; title" in page
    assert len(page) > 1_000_000  # plotly itself


def test_names_in_chinese_take_a_font_of_the_system_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    original = ImageFont.truetype

    def truetype(font: Any, size: float, **more: Any) -> ImageFont.FreeTypeFont:
        if not isinstance(font, str):  # Pillow's own font, which it reads from memory
            return original(font, size, **more)
        asked.append(font)
        if len(asked) < 3:
            raise OSError("cannot open resource")
        return ImageFont.load_default(size)  # type: ignore[return-value]

    monkeypatch.setattr("whet.plots.png.ImageFont.truetype", truetype)
    drawing = Drawing(100, 40, [Text(5, 20, "奖励", 12, "start")])
    assert to_png(drawing).startswith(b"\x89PNG")
    assert len(asked) == 3
    assert to_png(Drawing(100, 40, [Text(5, 20, "reward", 12, "start")])).startswith(b"\x89PNG")
    assert len(asked) == 3  # Latin names need none
