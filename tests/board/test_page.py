"""The page's own files: what they may not contain, and what its pure modules compute (with Node, where it is)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from board.conftest import HOSTILE, TOKEN
from starlette.testclient import TestClient

from whet.board.app import make_app
from whet.board.runs import Runs

PAGE = Path(__file__).parents[2] / "whet" / "board" / "page"
MODULES = sorted(PAGE.glob("*.js"))
TYPES = Path(__file__).parents[2] / "tools" / "page_types.json"


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.name)
def test_modules_are_small_checked_and_never_parse_markup(file: Path) -> None:
    text = file.read_text()
    assert text.startswith("// @ts-check\n")
    assert len(text.splitlines()) < 150
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser", text
    )
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    for name in re.findall(r'from "\./([^"]+)"', text):
        assert (PAGE / name).is_file(), name


def test_every_file_is_served_and_styles_and_markup_load_nothing_else(run: Path) -> None:
    client = TestClient(make_app(Runs([run.parent]), TOKEN), base_url="http://127.0.0.1")
    for file in PAGE.iterdir():
        answer = client.get(f"/{TOKEN}/{file.name}")
        assert answer.status_code == 200
        assert answer.content == file.read_bytes()
    for name in ("board.css", "index.html"):
        assert not re.search(r"https?:|url\(|@import|<style|onclick", (PAGE / name).read_text())
    assert b"Plotly" in client.get(f"/{TOKEN}/plotly.min.js").content


def node(module: str, expression: str) -> object:
    """Evaluate an expression over the exports `m` of a module."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("Node is not installed")
    script = f"import('data:text/javascript;base64,{module}').then(m => console.log(JSON.stringify({expression})))"
    done = subprocess.run([program, "-e", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def encoded(name: str) -> str:
    """Return a module as Node can import it, whatever its package says."""
    import base64

    return base64.b64encode((PAGE / name).read_bytes()).decode()


def test_hidden_characters_are_shown_by_name() -> None:
    text = HOSTILE["ansi"] + HOSTILE["bidi"] + "\n\t\u200d\ud800\u2028é汉"
    shown = node(encoded("visible.js"), f"m.visible({json.dumps(text)})")
    assert shown == (
        "⟨U+001B⟩[31mred⟨U+001B⟩[0m ⟨U+0000⟩ nul⟨U+202E⟩gnp.exe⟨U+202C⟩⟨U+200B⟩\n\t\u200d⟨U+D800⟩⟨U+2028⟩é汉"
    )


def test_smoothing_is_an_average_without_a_bias_to_zero() -> None:
    assert node(encoded("smoothing.js"), "m.smooth([2, 2, null, 2], 0.9)") == pytest.approx([2, 2, None, 2])
    assert node(encoded("smoothing.js"), "m.smooth([1, 3], 0.5)") == pytest.approx([1, (0.25 + 1.5) / 0.75])
    assert node(encoded("smoothing.js"), "m.smooth([1, 3], 0)") == [1, 3]


def test_differences_of_texts() -> None:
    script = "m.diff(m.words('the cat sat on a mat'), m.words('the dog sat on a mat now'))"
    found = node(encoded("diff.js"), script)
    assert isinstance(found, list)
    assert "".join(each["text"] for each in found if each["kind"] != "right") == "the cat sat on a mat"
    assert "".join(each["text"] for each in found if each["kind"] != "left") == "the dog sat on a mat now"
    assert {each["text"].strip() for each in found if each["kind"] == "left"} >= {"cat"}
    assert node(encoded("diff.js"), "m.diff([], [])") == []
    assert node(encoded("diff.js"), "m.diff(['a'], ['a'])") == [{"kind": "same", "text": "a"}]
    long = "m.diff(Array(5000).fill('a '), Array(5000).fill('b '))"  # too long to compare: two pieces, at once
    assert [each["kind"] for each in node(encoded("diff.js"), long)] == ["left", "right"]  # type: ignore[attr-defined]


def test_runs_of_several_seeds_become_a_band() -> None:
    names = ["grpo-seed1", "grpo_s2", "lr=3,seed=4", "other", "x/1", "x-2", "lr=3e-4"]
    families = node(encoded("bands.js"), f"{json.dumps(names)}.map(m.family)")
    assert families == ["grpo", "grpo", "lr=3", "other", "x", "x", "lr=3e-4"]
    lines = [
        {"label": "a-1", "x": [1, 2], "y": [1.0, None]},
        {"label": "a-2", "x": [1, 2], "y": [3.0, 4.0]},
        {"label": "b", "x": [1], "y": [7.0]},
    ]
    found = node(encoded("bands.js"), f"m.banded({json.dumps(lines)})")
    assert found == [
        {"label": "a (2)", "x": [1, 2], "y": [2, 4], "low": [1, 4], "high": [3, 4]},
        {"label": "b", "x": [1], "y": [7]},
    ]


def test_every_label_has_a_chinese_one() -> None:
    used = set()
    for file in MODULES:
        used |= set(re.findall(r"""\bt\("((?:[^"\\]|\\.)+)\"""", file.read_text()))
    known = node(encoded("chinese.js"), "Object.keys(m.CHINESE)")
    assert isinstance(known, list)
    assert used - set(known) == set()


def check_types(*files: Path) -> subprocess.CompletedProcess[str]:
    """Check modules with TypeScript, as `make quality` does."""
    program = shutil.which("deno", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if program is None:
        pytest.skip("Deno is not installed")
    arguments = [program, "check", "--quiet", "--no-remote", "--config", str(TYPES), *map(str, files)]
    environment = {**os.environ, "NO_COLOR": "1", "DENO_NO_UPDATE_CHECK": "1"}
    return subprocess.run(arguments, capture_output=True, text=True, timeout=120, env=environment)


def test_types_of_the_modules(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.js"
    wrong.write_text("/** @param {string} text */\nexport const f = (text) => text.size;\n")
    done = check_types(*MODULES, wrong)
    assert "Property 'size' does not exist on type 'string'" in done.stderr  # a mistake would be seen
    assert "Found 1 error" in done.stderr or done.stderr.count("TS") == 1, done.stderr
    assert not [file.name for file in MODULES if f"/{file.name}:" in done.stderr], done.stderr
