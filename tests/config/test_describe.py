"""The config as text, and the reference page."""

from pathlib import Path

from whet.config import load_config
from whet.config.describe import describe, diff, reference
from whet.config.schema import all_keys

DOCS = Path(__file__).parents[2] / "docs/config.md"


def test_describe_names_every_key_with_type_default_and_help():
    lines = describe().splitlines()
    for name, key in all_keys().items():
        (line,) = [line for line in lines if line.split()[:1] == [name]]
        assert key.type_name in line
        assert key.help in line


def test_describe_shows_the_values_of_a_config():
    text = describe(load_config(["data.seed=12345"]))
    assert any(line.split()[:3] == ["data.seed", "int", "12345"] for line in text.splitlines())


def test_diff_lists_only_what_changed():
    assert diff(load_config([])) == ""
    argv = ["worker.actor.optim.lr=2e-6", "data.image_dir=pics", "trainer.logger=[file]", "data.seed=1"]
    assert diff(load_config(argv)).splitlines() == [
        "data.image_dir: null -> pics",
        "worker.actor.optim.lr: 1e-06 -> 2e-06",
        "trainer.logger: [console, file] -> [file]",
    ]


def test_the_reference_page_is_up_to_date():
    assert DOCS.read_text(encoding="utf-8") == reference(), "run: python -m whet.config > docs/config.md"
