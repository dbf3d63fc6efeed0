"""Charts of one picture share their x axis, and a chart has dots on all of its thick lines or on none."""

from __future__ import annotations

from whet.plots.chart import Dot, Line, Panel, Series, caption, has_dots, lay_out


def series(first: int, count: int, colour: int = 0) -> Series:
    return Series("run", [(first + i, float(i)) for i in range(count)], colour)


def test_a_step_stands_in_the_same_place_of_every_chart() -> None:
    drawing = lay_out(
        [Panel("a", [series(0, 51)]), Panel("b", [series(1, 50)]), Panel("c", [series(10, 1)])], columns=1
    )
    lines = [shape for shape in drawing.shapes if isinstance(shape, Line) and shape.colour == 0]
    (dot,) = [shape for shape in drawing.shapes if isinstance(shape, Dot)]
    assert [len(line.points) for line in lines] == [51, 50]
    assert lines[0].points[1][0] == lines[1].points[0][0]
    assert lines[0].points[10][0] == dot.x


def test_a_short_run_beside_a_long_one_has_no_dots_either() -> None:
    short, long = series(0, 5), series(0, 100, colour=1)
    assert has_dots(Panel("a", [short]))
    assert not has_dots(Panel("a", [short, long]))
    drawn = lay_out([Panel("a", [short, long])])
    assert not [shape for shape in drawn.shapes if isinstance(shape, Dot)]


def test_an_empty_picture_and_its_caption() -> None:
    assert lay_out([Panel("a", [])]).height > 0
    assert caption([Panel("a", [series(0, 3)])]) == "x: step"
