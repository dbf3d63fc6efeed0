"""Secrets of a config are neither stored nor printed."""

import pytest
import yaml

from whet.config import load_config
from whet.config.describe import describe, diff
from whet.config.secrets import is_secret, masked, masked_arguments
from whet.errors import UserError

KWARGS = "worker.reward.reward_function_kwargs"


@pytest.mark.parametrize(
    "name",
    ["api_key", "apiKey", "API_KEY", "x.openai_api_key", "token", "hf_token", "accessToken", "password", "db_passwd",
     "client_secret", "Authorization", "private_key", "aws_secret_access_key"],
)  # fmt: skip
def test_names_of_secrets(name):
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    ["max_tokens", "token_file", "key_env", "eos_token", "pad_token", "prompt_key", "micro_batch_tokens", "tokens",
     "tokenizer_path", "answer_key", "image_token", "stop_token", "author", "keyword", ""],
)  # fmt: skip
def test_names_of_other_things(name):
    assert not is_secret(name)


def test_text_from_the_environment_is_stored_as_written(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "s3cr3t")
    arguments = [
        f"{KWARGS}.endpoint=https://x/${{oc.env:SOME_KEY}}",
        "trainer.project_name=${oc.env:SOME_KEY}",
        "trainer.experiment_name=${trainer.project_name}-x",
        "data.prompt_key='a ${oc.decode:\"1\"}'",
    ]
    config = load_config(arguments)
    assert config.trainer.experiment_name == "s3cr3t-x"
    assert config.worker.reward.reward_function_kwargs == {"endpoint": "https://x/s3cr3t"}
    for text in (config.to_yaml(), str(config.stored()), describe(config), diff(config)):
        assert "s3cr3t" not in text
        assert "${oc.env:SOME_KEY}" in text


def test_stored_config_is_read_back_under_another_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("SOME_KEY", "one")
    config = load_config([f"{KWARGS}.api_key=${{oc.env:SOME_KEY}}", r"trainer.project_name=a\${b}"])
    file = tmp_path / "config.yaml"
    file.write_text(config.to_yaml())
    assert load_config([f"config={file}"]) == config
    monkeypatch.setenv("SOME_KEY", "two")
    assert load_config([f"config={file}"]).worker.reward.reward_function_kwargs == {"api_key": "two"}


def test_literal_secrets_are_left_out(tmp_path):
    given = {"api_key": "s3cr3t", "headers": {"Authorization": "s3cr3t"}, "list": [{"password": "s3cr3t"}], "n": 3}
    config = load_config([f"{KWARGS}={yaml.safe_dump(given, default_flow_style=True).strip()}"])
    assert config.worker.reward.reward_function_kwargs == given
    for text in (config.to_yaml(), str(config.stored()), describe(config), diff(config)):
        assert "s3cr3t" not in text
    file = tmp_path / "config.yaml"
    file.write_text(config.to_yaml())
    with pytest.raises(UserError, match=r"api_key=.*still has to be filled in"):
        load_config([f"config={file}"])


def test_values_with_the_form_of_a_key_are_masked_under_any_name():
    assert masked({"a": "sk-abcdefghijklmnopqrstuv", "b": "sk-8"}) == {"a": "***", "b": "sk-8"}
    assert masked("http://user:pass@host/v1") == "http://***@host/v1"
    assert masked_arguments(["config=x.yaml", "a.api_key=1", "--diff"]) == ["config=x.yaml", "a.api_key=***", "--diff"]


@pytest.mark.parametrize(
    "argument",
    [f"{KWARGS}.api_key=[s3cr3t", f"--{KWARGS}.api_key=s3cr3t", "trainer.max_steps=${oc.env:SOME_KEY}",
     "eval.api.extra_body.api_key.x=s3cr3t=["],
)  # fmt: skip
def test_errors_do_not_print_secrets(monkeypatch, argument):
    monkeypatch.setenv("SOME_KEY", "s3cr3t")
    with pytest.raises(UserError) as caught:
        load_config([argument, "trainer.max_steps=x"] if "max_steps" not in argument else [argument])
    assert "s3cr3t" not in str(caught.value)
