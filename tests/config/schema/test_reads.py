"""Every key of the schema is read by the package, or refused at any value but one."""

from __future__ import annotations

import functools
from collections import defaultdict
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from config.schema.reads import declared, reads, sections

from whet.config import check_config, load_config
from whet.config.checks.not_yet import NOT_YET
from whet.config.keys import Key
from whet.config.schema import all_keys
from whet.errors import UserError

PACKAGE = Path(__file__).parents[3] / "whet"
# Files that name keys without following them.
NAMING = ("config/schema", "config/loading", "config/checks/not_yet.py", "config/describe.py", "config/stages.py")
NAMING += ("config/summary.py", "config/views.py", "api/names.py")
# The loader reads them as f"{section}.preset" and fills in the other keys of their section.
BY_LOADER = {("RolloutCorrectionConfig", "preset"), ("PlacementConfig", "preset")}


@functools.cache
def prefixes() -> dict[str, list[str]]:
    """Return every dotted place of each section's class, as `worker.actor.`."""
    found: dict[str, list[str]] = defaultdict(list)
    below = sections()

    def walk(cls: str, prefix: str) -> None:
        found[cls].append(prefix)
        for name, inner in below[cls].items():
            if inner:
                walk(inner, f"{prefix}{name}.")

    walk("Config", "")
    return found


def names_of(section: str, key: str) -> list[str]:
    """Return every dotted name of a key of a section's class."""
    return [f"{prefix}{key}" for prefix in prefixes()[section]]


def is_refused(name: str, keys: dict[str, Key]) -> bool:
    """True if the key can have one value only."""
    return len(keys[name].choices) == 1 or any(fnmatchcase(name, each.pattern) for each in NOT_YET)


def test_no_key_is_without_effect() -> None:
    files = [
        file
        for file in PACKAGE.rglob("*.py")
        if not str(file.relative_to(PACKAGE)).startswith(NAMING) or file.name == "correction.py"
    ]
    known = all_keys()
    keys = [key for key in declared() if names_of(*key)[0] in known]
    assert len(keys) > 150
    found = reads(files) | BY_LOADER
    unread = [name for key in keys if key not in found for name in names_of(*key)]
    assert [name for name in unread if not is_refused(name, known)] == []


def test_the_search_follows_types_and_not_names_alone(tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text(
        "def f(config: Config, other: Thing) -> None:\n"
        "    data, actor = config.data, config.worker.actor\n"
        "    print(data.seed, actor.optim.lr, other.config.shuffle)\n"
        "    actor.ppo_epochs = 3\n"
    )
    found = reads([file])
    assert {("DataConfig", "seed"), ("OptimConfig", "lr")} <= found
    assert ("RolloutConfig", "seed") not in found  # read from another section
    assert ("ActorConfig", "ppo_epochs") not in found  # written
    assert ("DataConfig", "shuffle") not in found  # `config` is a Config wherever its type is known
    assert ("DataConfig", "train_files") not in found


def test_keys_without_effect_are_refused() -> None:
    names = ["worker.actor.fsdp.use_orig_params", "worker.rollout.disable_tqdm"]
    with pytest.raises(UserError) as refused:
        check_config(load_config([f"{name}=true" for name in names]))
    assert all(f"{name}=true: " in str(refused.value) for name in names)
