"""The schema holds every EasyR1 key, and a config written out reads back as itself."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.config import Config, load_config, with_values
from whet.config.keys import Key
from whet.config.loading.replaced import DERIVED
from whet.config.schema import all_keys, all_sections
from whet.config.values import complaint_about
from whet.errors import UserError

TABLE = Path(__file__).parents[3] / "../shared/reference/easyr1_config_keys.md"


def easyr1_rows() -> list[tuple[str, str, str, str]]:
    if not TABLE.is_file():
        pytest.skip(f"the table of EasyR1's keys is not at {TABLE}")
    rows = re.findall(r"^\| `([\w.]+)` \| (.+?) \| `(.*?)` \| (.+?) \| (.*?) ?\|$", TABLE.read_text(), re.MULTILINE)
    return [(name, default, shipped, note) for name, _, default, shipped, note in rows]


def test_every_easyr1_key_exists_or_says_what_it_follows_from():
    rows = easyr1_rows()
    assert len(rows) == 193
    for name, _, _, note in rows:
        if note.startswith("auto."):
            with pytest.raises(UserError, match=re.escape(name) + r" cannot be set: it "):
                load_config([f"{name}=1"])
        else:
            assert name in all_keys(), name


def test_defaults_are_easyr1s_but_for_those_a_laptop_needs():
    ours = {
        "trainer.logger",
        "trainer.n_gpus_per_node",
        "trainer.project_name",
        "worker.actor.model.enable_gradient_checkpointing",
        "worker.actor.model.trust_remote_code",
        "worker.actor.use_torch_compile",
        "worker.critic.model.enable_gradient_checkpointing",
        "worker.critic.model.trust_remote_code",
        "worker.critic.padding_free",
        "worker.ref.offload.offload_params",
        "worker.reward.num_cpus",
        "worker.rollout.dtype",
        "worker.rollout.name",
        "worker.rollout.tensor_parallel_size",
    }
    kept = [(name, default) for name, default, _, _ in easyr1_rows() if name in all_keys()]
    assert {name for name, default in kept if repr(all_keys()[name].default) != default} == ours


def test_values_shipped_with_easyr1_are_accepted():
    shipped = [(name, value.strip("`")) for name, _, value, _ in easyr1_rows() if value not in ("-", "`None`")]
    config = load_config([f"{name}={value}" for name, value in shipped])
    assert config.worker.actor.global_batch_size == 128
    assert config.trainer.logger == ["file", "wandb"]
    assert config.worker.actor.optim.lr == 1e-6


def test_every_key_and_section_has_one_line_of_help_and_a_valid_default():
    assert set(DERIVED).isdisjoint(all_keys())
    for name, key in all_keys().items():
        assert 10 < len(key.help) < 110, name
        assert "\n" not in key.help, name
        assert complaint_about(key, key.default) is None, name
    assert all(all_sections().values())


def test_mutable_defaults_are_not_shared():
    Config().trainer.logger.append("wandb")
    Config().worker.rollout.val_override_config["n"] = 3
    assert Config().trainer.logger == ["console", "file"]
    assert Config().worker.rollout.val_override_config == {}


def values_of(key: Key) -> st.SearchStrategy[Any]:
    """Values that the key allows."""
    low = key.least if key.least is not None else key.above
    high = key.most if key.most is not None else key.below
    text = st.text(max_size=12) | st.sampled_from(["no", "1e-6", "007", "${data.seed}", r"\${x}", "a: b", "null", "~"])
    numbers = st.floats(low, high, allow_nan=False, allow_infinity=False)
    names = st.from_regex(r"[a-z_]{1,6}", fullmatch=True)
    plain = st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | text
    mapping = st.dictionaries(names, plain | st.lists(plain, max_size=2), max_size=3)
    strategy = {
        "int": st.integers(low, high),
        "float": numbers,
        "bool": st.booleans(),
        "str": st.sampled_from(key.choices) if key.choices else text,
        "bounds": st.sampled_from(["2.0", "0.5_2", "0.5_2.0", "1_2", "1e-3,0.5_2", "7"]),
        "list": st.lists(st.sampled_from(key.choices) if key.choices else text, max_size=3),
        "numbers": st.lists(numbers, max_size=3),
        "pair": st.tuples(numbers, numbers),
        "dict": mapping,
        "table": st.lists(mapping, max_size=2),
    }[key.kind]
    return (st.none() | strategy) if key.optional else strategy


def is_settable(key: Key, value: Any) -> bool:
    words = [value] if key.kind == "str" else list(value.values()) if key.kind == "dict" else []
    if "???" in words or (key.optional and isinstance(value, str) and value.lower() in ("none", "nil")):
        return False
    return complaint_about(key, value) is None


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_yaml_reads_back_as_an_equal_config(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    names = data.draw(st.lists(st.sampled_from(list(all_keys())), max_size=12, unique=True))
    keys = {name: all_keys()[name] for name in names}
    settable = {name: values_of(key).filter(partial(is_settable, key)) for name, key in keys.items()}
    config = with_values(Config(), {name: data.draw(settable[name]) for name in names})
    file = tmp_path_factory.mktemp("configs") / "config.yaml"
    file.write_text(config.to_yaml(), encoding="utf-8")
    assert load_config([f"config={file}"]) == config


def test_to_dict_holds_plain_values_and_every_key():
    tree = Config().to_dict()
    assert (
        set(tree) == {name for name in all_sections() if "." not in name} >= {"data", "algorithm", "worker", "trainer"}
    )
    assert tree["worker"]["actor"]["optim"]["betas"] == [0.9, 0.999]
    assert "source" not in tree
