"""The board in a real Chromium: every view, dark and light, wide and narrow, with hostile samples."""

from __future__ import annotations

import json
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
from board.conftest import sample
from PIL import Image

from whet.board.runs import run_id
from whet.tracking.run_folder import append_metrics
from whet.tracking.token_records import TokenFiles, TokenRecord
from whet.types import Media

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (apt install chromium)"),
    pytest.mark.skipif(find_spec("playwright") is None, reason="there is no playwright (pip install playwright)"),
]


@pytest.fixture
def board(run: Path) -> Iterator[str]:
    """The address of a board over the hostile run, in a process of its own."""
    stages = [["rollout", 0.0, 1.0], ["reward", 1.0, 1.1], ["update", 1.1, 2.0]]
    groups = [[8 * i, 0.0, 0.2 * i, 1.05] for i in range(5)]
    record = {"step": 3, "began": 0.0, "seconds": 2.0, "stages": stages, "groups": groups, "all_groups": 5}
    (run / "timeline.jsonl").write_text(json.dumps(record) + "\n")
    arguments = [sys.executable, "-m", "whet", "board", str(run.parent), "--port", "0", "--read-only", "--control"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = next((each for line in process.stdout if (each := re.search(r"board at (http://\S+)", line))), None)
        assert found is not None
        yield found[1]
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
        f"#/sample?run={name}&step=3&row=1": "trainer.log_token_details=true",
        f"#/step?run={name}&step=3": "Half of the groups were sampled by",
        f"#/step?run={name}&step=1": "This step has no timeline",
        f"#/compare?run={name}&uid=train.jsonl:1": "Struck out: only in the first",
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
    page.keyboard.press("Enter")  # takes the place of the token into the form below
    assert page.get_by_label("Keep the first tokens").input_value() == "1"
    assert page.evaluate("document.activeElement.name") == "at"
    page.goto(f"{board}#/sample?run={run_id(run)}&step=1&row=99")
    page.get_by_text("there is no row 99").wait_for(timeout=60_000)
    assert [each for each in wrong if "400" not in each] == []  # Chromium notes the refused request


def test_a_bar_of_a_histogram_leads_to_its_samples_by_keyboard(browser: Any, board: str, run: Path) -> None:
    page, wrong = open_page(browser, board, 1280, "dark")
    page.goto(f"{board}#/step?run={run_id(run)}&step=3")
    bar = page.locator("a.bin[href*=min_reward]").first
    bar.wait_for(timeout=60_000)
    count = bar.locator(".count").inner_text()
    bar.focus()
    page.keyboard.press("Enter")
    page.get_by_text(f"of {count} samples").first.wait_for(timeout=60_000)
    assert not wrong


def test_labels_in_chinese_and_a_sample_that_cannot_be_drawn_again(browser: Any, board: str, run: Path) -> None:
    page, wrong = open_page(browser, board, 390, "light")
    page.goto(f"{board}#/sample?run={run_id(run)}&step=1&row=4")
    page.get_by_role("button", name="Draw it again").click()
    page.locator("section .notice").first.wait_for(timeout=120_000)  # the run has no model, and the board says so
    page.get_by_label("Language").select_option("zh")
    page.get_by_role("button", name="重新抽取").wait_for(timeout=60_000)
    page.get_by_role("link", name="曲线").wait_for(timeout=60_000)
    assert page.evaluate("document.documentElement.lang") == "zh"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert [each for each in wrong if "400" not in each] == []


def test_pictures_of_prompt_and_episode_are_shown_at_their_places(browser: Any, board: str, run: Path) -> None:
    seen = sample(0, "markup")
    seen.prompt.media = Media(images=[Image.new("RGB", (84, 84), "red")])
    seen.segments[1].media = Media(images=[Image.new("RGB", (84, 84), "blue")])
    TokenFiles(run / "tokens", 10**6, run / "pictures").write(
        1, [TokenRecord(0, seen, [0.0] * 6, [0.0] * 6, None, None)]
    )
    page, wrong = open_page(browser, board, 390, "dark")
    page.goto(f"{board}#/sample?run={run_id(run)}&step=1&row=0")
    page.get_by_alt_text("picture of the episode").wait_for(timeout=60_000)
    widths = page.locator(".pictures img").evaluate_all("images => images.map(image => image.naturalWidth)")
    assert widths == [84, 84]
    before = page.get_by_alt_text("picture of the episode").evaluate(
        "image => image.parentElement.nextElementSibling.dataset.i"
    )
    assert before == "3"  # the first token that the environment wrote
    assert not wrong


def test_a_view_that_follows_a_run_leaves_the_focus_where_it_is(browser: Any, board: str, run: Path) -> None:
    page, wrong = open_page(browser, board, 1280, "light")
    page.goto(f"{board}#/runs")
    link = page.get_by_role("link", name="hostile")
    link.wait_for(timeout=60_000)
    link.focus()
    append_metrics(run / "metrics.jsonl", 15, {"reward/overall": 0.25})
    page.get_by_text("0.25", exact=True).wait_for(timeout=60_000)  # the table was drawn anew
    assert page.evaluate("document.activeElement.textContent") == "hostile"
    assert not wrong
