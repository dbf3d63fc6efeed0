"""The board in a real Chromium: every view, dark and light, wide and narrow, with hostile samples."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from whet.board.runs import run_id

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (apt install chromium)"),
    pytest.mark.skipif(find_spec("playwright") is None, reason="there is no playwright (pip install playwright)"),
]


@pytest.fixture
def board(run: Path) -> Iterator[str]:
    """The address of a board over the hostile run, in a process of its own."""
    arguments = [sys.executable, "-m", "whet", "board", str(run.parent), "--port", "0"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = next((each for line in process.stdout if (each := re.search(r"http://\S+", line))), None)
        assert found is not None
        yield found[0]
        process.terminate()
    assert process.returncode == 0


@pytest.fixture
def browser() -> Iterator[Any]:
    """Chromium; its own sandbox cannot be had as root, where tests are run in containers."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as library:
        arguments = ["--no-sandbox"] if os.getuid() == 0 else []
        opened = library.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield opened
        opened.close()


def open_page(browser: Any, board: str, width: int, scheme: str) -> tuple[Any, list[str]]:
    """Return a page and the list of what must not happen: errors, dialogs, requests that leave the board."""
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(dialog.message))
    page.on("request", lambda request: None if request.url.startswith((board, "data:")) else wrong.append(request.url))
    return page, wrong


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_every_view(browser: Any, board: str, run: Path, width: int, scheme: str) -> None:
    page, wrong = open_page(browser, board, width, scheme)
    name = run_id(run)
    views = {
        f"#/runs?run={name}": "the gradient was more than 10 times",
        f"#/curves?runs={name}&metrics=reward/overall&smooth=0.5&log=1": "reward/overall",
        f"#/groups?run={name}&step=1": "<script>window.hacked = 1</script>",
        f"#/samples?run={name}&text=answer: 39": "1 to 1 of 1 samples",
        f"#/samples?run={name}": "train_000002.parquet is damaged",
        f"#/sample?run={name}&step=1&row=1": "written by a tool or the environment",
        f"#/sample?run={name}&step=3&row=1": "trainer.log_token_log_probs=true",
        f"#/config?run={name}": "data.max_response_length",
    }
    for address, text in views.items():
        page.goto(board + address)
        page.get_by_text(text).first.wait_for(timeout=60_000)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, address
        assert page.locator("#problem").is_hidden()
    page.goto(f"{board}#/curves?runs={name}&metrics=reward/overall")
    page.locator(".chart .scatterlayer .trace").first.wait_for(timeout=60_000)
    assert page.evaluate("window.hacked") is None
    assert not wrong


def test_keyboard_alone_filters_samples_and_reads_tokens(browser: Any, board: str, run: Path) -> None:
    page, wrong = open_page(browser, board, 1280, "light")
    page.goto(f"{board}#/samples?run={run_id(run)}")
    page.get_by_label("Text").focus()
    page.keyboard.type("Answer: 38")
    page.keyboard.press("Enter")
    page.get_by_text("1 to 1 of 1 samples").wait_for(timeout=60_000)
    page.goto(f"{board}#/sample?run={run_id(run)}&step=1&row=0")
    page.get_by_label("tokens of the response").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.get_by_text("token 2 of 6, id 2: log-prob -2, probability 0.1353").wait_for(timeout=60_000)
    page.goto(f"{board}#/sample?run={run_id(run)}&step=1&row=99")
    page.get_by_text("there is no row 99").wait_for(timeout=60_000)
    assert [each for each in wrong if "400" not in each] == []  # Chromium notes the refused request
