"""Defaults < file < arguments, and an error that names the key for everything that can be written wrongly."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.config import load_config
from whet.config.schema import all_keys
from whet.errors import UserError


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> Path:
        file = tmp_path / "run.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    return write


def error_of(*argv: str) -> str:
    with pytest.raises(UserError) as caught:
        load_config(list(argv))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_arguments_win_over_the_file_and_the_file_over_defaults(write):
    file = write("data: {seed: 5, max_prompt_length: 100}\nworker: {actor: {optim: {lr: 1e-4}}}\n")
    config = load_config([f"config={file}", "data.seed=6"])
    assert (config.data.seed, config.data.max_prompt_length, config.data.max_response_length) == (6, 100, 512)
    assert config.worker.actor.optim.lr == 1e-4
    assert config.source == file


def test_default_file_is_read_only_without_config(write, tmp_path):
    file = write("data: {seed: 5}")
    other = tmp_path / "other.yaml"
    other.write_text("data: {video_fps: 3}")
    assert load_config([], file).data.seed == 5
    assert load_config([f"config={other}"], file).data.seed == 1
    assert load_config([]).source is None


def test_free_mappings_are_merged_over_sources(write):
    file = write("worker: {rollout: {val_override_config: {temperature: 0.6, n: 1}}}")
    name = "worker.rollout.val_override_config"
    config = load_config([f"config={file}", f"{name}.n=4", f"{name}.top_p=0.5"])
    assert config.worker.rollout.val_override_config == {"temperature": 0.6, "n": 4, "top_p": 0.5}


@pytest.mark.parametrize(
    ("argument", "path", "value"),
    [
        ("worker.actor.optim.lr=1e-6", "worker.actor.optim.lr", 1e-6),
        ("worker.actor.optim.lr=0", "worker.actor.optim.lr", 0.0),
        ("data.shuffle=False", "data.shuffle", False),
        ("trainer.max_steps=null", "trainer.max_steps", None),
        ("trainer.max_steps=1_000", "trainer.max_steps", 1000),
        ("trainer.logger=console", "trainer.logger", ["console"]),
        ("trainer.logger=['console','wandb']", "trainer.logger", ["console", "wandb"]),
        ("worker.rollout.stop=['###', \"a\\n\"]", "worker.rollout.stop", ["###", "a\n"]),
        ("worker.actor.optim.betas=[0.9, 0.95]", "worker.actor.optim.betas", (0.9, 0.95)),
        ("trainer.experiment_name=007", "trainer.experiment_name", "007"),
        ("trainer.experiment_name=no", "trainer.experiment_name", "no"),
        ("trainer.experiment_name=a=b", "trainer.experiment_name", "a=b"),
        ("trainer.experiment_name='null'", "trainer.experiment_name", "null"),
        ("trainer.experiment_name=${trainer.project_name}-${data.seed}", "trainer.experiment_name", "whet-1"),
        ("data.seed=${data.max_prompt_length}", "data.seed", 512),
        ("data={seed: 7}", "data.seed", 7),
    ],
)
def test_values_arrive_in_their_type(argument, path, value):
    found = load_config([argument])
    for part in path.split("."):
        found = getattr(found, part)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("data.max_prompt_length=abc", "data.max_prompt_length=abc: expected an integer"),
        ("data.max_prompt_length=1.5", "data.max_prompt_length=1.5: expected an integer"),
        ("data.max_prompt_length=true", "data.max_prompt_length=true: expected an integer"),
        ("data.max_prompt_length=[1]", "data.max_prompt_length=[1]: expected an integer"),
        ("data.max_prompt_length={a: 1}", "data.max_prompt_length={a: 1}: expected an integer"),
        ("data.max_prompt_length=null", "data.max_prompt_length=null: null is not a value here; expected an integer"),
        ("data.max_prompt_length=", "data.max_prompt_length=: has no value; expected an integer"),
        ("data.image_dir=", "data.image_dir=: has no value; expected text or null"),
        ("data.image_dir=None", "data.image_dir=None: write null for no value"),
        ("data.image_dir='  '", "data.image_dir=  : is empty; write null for no value"),
        ("data.max_prompt_length=-5", "data.max_prompt_length=-5: must be at least 1"),
        ("data.max_prompt_length=0", "data.max_prompt_length=0: must be at least 1"),
        ("trainer.save_limit=0", "trainer.save_limit=0: must be at least 1, or -1"),
        ("trainer.val_freq=0", "trainer.val_freq=0: must be at least 1, or -1"),
        ("trainer.total_epochs=0", "trainer.total_epochs=0: must be at least 1"),
        ("worker.rollout.top_k=0", "worker.rollout.top_k=0: must be at least 1, or -1"),
        ("worker.rollout.top_p=0", "worker.rollout.top_p=0: must be above 0 and at most 1"),
        ("worker.rollout.temperature=-1", "worker.rollout.temperature=-1: must be at least 0"),
        ("worker.actor.optim.lr=-1e-6", "worker.actor.optim.lr=-1e-6: must be at least 0"),
        ("worker.actor.optim.lr=nan", "worker.actor.optim.lr=nan: must be a finite number"),
        ("worker.actor.optim.lr=.inf", "worker.actor.optim.lr=.inf: must be a finite number"),
        ("worker.actor.optim.lr=1e999", "worker.actor.optim.lr=1e999: must be a finite number"),
        ("worker.actor.optim.lr=fast", "worker.actor.optim.lr=fast: expected a number"),
        ("worker.actor.optim.lr=true", "worker.actor.optim.lr=true: expected a number"),
        ("worker.actor.optim.betas=0.9", "worker.actor.optim.betas=0.9: expected two numbers such as [0.9, 0.999]"),
        ("worker.actor.optim.betas=[0.9, 1]", "worker.actor.optim.betas=[0.9, 1]: must be at least 0 and below 1"),
        ("data.shuffle=maybe", "data.shuffle=maybe: expected true or false"),
        ("data.shuffle=1", "data.shuffle=1: expected true or false"),
        ("data.shuffle=yes", "data.shuffle=yes: expected true or false"),
        ("trainer.logger=[1]", "trainer.logger=[1]: expected a list such as [a, b]"),
        ("trainer.device=GPU", "GPU is not one of auto, cpu, cuda; did you mean cuda?"),
        ("trainer.logger=[wandbb]", "wandbb is not one of console, file, mlflow, swanlab, tensorboard, wandb"),
        ("algorithm.adv_estimator=gropo", "did you mean grpo?"),
        ("worker.actor.loss_avg_mode=token-meen", "did you mean token-mean?"),
        ("worker.rollout.stop=[a", "worker.rollout.stop=[a: cannot be read as YAML"),
        ("worker.rollout.stop=###", "worker.rollout.stop=###: reads as nothing in YAML; put it in quotes"),
        ("worker.rollout.val_override_config=3", "worker.rollout.val_override_config=3: expected a mapping"),
        ("data=3", "data=3: is a section; give its keys, such as data.train_files"),
        ("data.seed.deep=1", "data.seed.deep: data.seed is a single value and has no keys below it"),
        ("trainer.experiment_name=???", "trainer.experiment_name=???: still has to be filled in"),
        ("data.seed=${data.sed}", "data.seed=${data.sed}: cannot be resolved: Interpolation key 'data.sed' not found"),
        (
            "data.seed=${oc.env:WHET_UNSET}",
            "data.seed=${oc.env:WHET_UNSET}: cannot be resolved: $WHET_UNSET is not set",
        ),
        ("data.seed=${data.seed}", "data.seed=${data.seed}: cannot be resolved"),
        ("data.seed=${", "data.seed=${: cannot be read"),
        ("data.seed=${data.shuffle}", "data.seed=true: expected an integer"),
        ("data.seed", "data.seed: expected key=value"),
        ("data.sed", "data.sed: expected key=value; did you mean data.seed?"),
        ("rows.jsonl", "rows.jsonl: expected key=value; a data file is data.train_files=rows.jsonl"),
        ("=3", "=3: expected key=value"),
        ("--data.seed=3", "--data.seed=3: leave out the -- and write data.seed=3"),
        ("+data.seed=3", "+data.seed=3: leave out the + and write data.seed=3"),
        ("~data.seed", "~data.seed: leave the key out to have its default"),
        ("data.seed =3", "expected key=value without spaces"),
        ("config=", "config=: has no value"),
        ("--n", "--n: expected key=value; did you mean worker.rollout.n?"),
        ("whet/quickstart", "expected key=value; a model is worker.actor.model.model_path=whet/quickstart"),
    ],
)
def test_a_wrong_argument_is_named(argument, message):
    assert message in error_of(argument)


@pytest.mark.parametrize("words", [("data.seed", "=", "3"), ("data.seed=", "3"), ("data.seed", "=3")])
def test_spaces_around_the_equals_sign_are_one_problem(words):
    assert error_of(*words).endswith("leave out the spaces around the = and write data.seed=3")
    assert "has no value" in error_of("data.seed=", "data.shuffle=true")


@pytest.mark.parametrize(
    ("argument", "meant"),
    [
        ("data.max_promt_length=3", "data.max_prompt_length"),
        ("max_prompt_length=3", "data.max_prompt_length"),
        ("worker.actor.lr=3", "worker.actor.optim.lr"),
        ("worker.rollout.tempreature=3", "worker.rollout.temperature"),
        ("trainer.total_training_stps=3", "trainer.total_training_steps"),
        ("Data.Seed=3", "data.seed"),
        ("confg=run.yaml", "config"),
        ("model=org/name", "worker.actor.model.model_path"),
        ("num_generations=8", "worker.rollout.n"),
        ("worker.actor.optim.learning_rate=1", "worker.actor.optim.lr"),
        ("trainer.epochs=1", "trainer.total_epochs"),
    ],
)
def test_an_unknown_key_names_the_nearest(argument, meant):
    name = argument.partition("=")[0]
    assert error_of(argument) == f"unknown key {name}; did you mean {meant}?"


def test_names_of_other_trainers_lead_to_keys():
    from whet.config.loading.wrong_names import _SHORT
    from whet.config.schema import all_keys

    assert set(_SHORT.values()) <= set(all_keys())


@pytest.mark.parametrize("name", ["zzzz", "trainer.foo", "worker.zzzz"])  # like others by its section alone
def test_an_unknown_key_near_nothing_says_where_the_list_is(name):
    assert error_of(f"{name}=1") == f"unknown key {name}; `whet config` lists every key"


def test_config_given_twice(write):
    file = write("")
    assert "config= is given 2 times" in error_of(f"config={file}", f"config={file}")


def test_missing_file_names_its_neighbour(write, tmp_path):
    write("")
    assert error_of(f"config={tmp_path}/rum.yaml").endswith(f"there is no such file; did you mean {tmp_path}/run.yaml?")
    assert "it is a folder" in error_of(f"config={tmp_path}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data:\n  seed: 1\n  max_promt_length: 3\n", "unknown key data.max_promt_length (FILE, line 3); did you mean"),
        ("data:\n  seed: abc\n", "data.seed=abc (FILE, line 2): expected an integer"),
        ("data:\n  seed: 1.0\n", "data.seed=1.0 (FILE, line 2): expected an integer; write 1"),
        ("data:\n  prompt_key: no\n", "data.prompt_key=false (FILE, line 2): expected text; put it in quotes"),
        ("data:\n  prompt_key: 12\n", "data.prompt_key=12 (FILE, line 2): expected text; put it in quotes"),
        ("data:\n  image_dir:\n", "data.image_dir (FILE, line 2): has no value; write null for none"),
        ("data:\n  seed: null\n", "data.seed=null (FILE, line 2): null is not a value here"),
        ("data: 3\n", "data=3 (FILE, line 1): is a section"),
        ("data:\n  train_files: [a, b]\n", "expected text; write them in one text, with commas between"),
        ("data:\n  seed: {a: 1}\n", "data.seed={a: 1} (FILE, line 2): expected an integer"),
        ("data:\n  seed: [1\n", "FILE, line 3: is not YAML"),
        ("data:\n\tseed: 1\n", "FILE, line 2: is not YAML"),
        ("data:\n  seed: !!int x\n", "FILE, line 2: x is no int"),
        ("data:\n  seed: ${\n", "config=FILE: cannot be read"),
        ("data:\n  seed: 1\n  seed: 2\n", "FILE, line 3: is not YAML: found duplicate key seed"),
        ("- data\n", "FILE: must hold sections such as data: and worker:"),
        ("data\n", "FILE: must hold sections such as data: and worker:"),
        ("data.seed: 1\ndata: {seed: 2}\n", "both set data.seed; keep one"),
        (
            "worker:\n  actor:\n    kl_coef: 1\n",
            "worker.actor.kl_coef (FILE, line 3) cannot be set: it follows algorithm.kl",
        ),
        ("1: 2\n", "unknown key 1 (FILE, line 1)"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(write, text, message):
    file = write(text)
    assert message.replace("FILE", str(file)) in error_of(f"config={file}")


def test_a_file_that_is_not_text(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    assert "is not a UTF-8 text file" in error_of(f"config={file}")


def test_empty_files_and_empty_sections_change_nothing(write):
    for text in ("", "---\n", "---\n...\n", "# nothing\n", "data:"):
        assert load_config([f"config={write(text)}"]) == load_config([])


def test_numbers_written_as_text_are_read(write):
    config = load_config([f"config={write('worker: {actor: {optim: {lr: !!str 1e-6}}}')}"])
    assert config.worker.actor.optim.lr == 1e-6


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(list(all_keys())),
    text=st.text(max_size=10) | st.sampled_from(["[", "{a", "${x", "- a", "&a", "!!int x"]),
)
def test_no_argument_ends_in_a_traceback(name, text):
    with contextlib.suppress(UserError):
        load_config([f"{name}={text}"])


@settings(max_examples=60, deadline=None)
@given(text=st.text(alphabet="data:seed \n-[]{}&*!#'\"$?<|>%@`,1.", max_size=30))
def test_no_file_ends_in_a_traceback(tmp_path_factory: pytest.TempPathFactory, text):
    file = tmp_path_factory.mktemp("configs") / "run.yaml"
    file.write_text(text, encoding="utf-8")
    with contextlib.suppress(UserError):
        load_config([f"config={file}"])
