"""A real vLLM and prompts with images and videos, against transformers and the native engine."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from model.tiny_vision import (
    EOS,
    IMAGE,
    KINDS,
    VIDEO,
    VOCABULARY,
    WORDS,
    mixed_prompts,
    theirs,
    tiny_vision,
    vision_prompt,
)
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from whet.assets.vision_model import QWEN2_5, QWEN3, VISION_TOKENS, image_settings
from whet.model.names import folder_weights
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.engine import NativeEngine
from whet.rollout.engines.vllm.engine import VLLMEngine
from whet.rollout.engines.vllm.settings import Settings
from whet.types import Prompt, Sample

FORBIDDEN = list(range(WORDS, WORDS + 4))
GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)


@pytest.fixture(scope="module")
def words() -> PreTrainedTokenizerFast:
    """One word a token, and Qwen's marks of images where the models of these tests have them."""
    names = [f"w{i}" for i in range(WORDS)] + list(VISION_TOKENS) + [f"e{i}" for i in range(EOS, VOCABULARY)]
    vocabulary = {name: i for i, name in enumerate(names)}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(vocabulary, unk_token="w0")), eos_token=f"e{EOS}", pad_token=f"e{EOS}"
    )


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    model = tiny_vision(request.param, head_dim=32, hidden=64)
    model.config.architectures = [type(model).__name__]  # as in a folder
    return model


@pytest.fixture(scope="module")
def plain(model: PreTrainedModel) -> PreTrainedModel:
    """The same weights with transformers' own attention."""
    return tiny_vision(model.config.model_type, ours=False, head_dim=32, hidden=64)


@pytest.fixture(scope="module")
def engine(
    settings: Settings, model: PreTrainedModel, words: PreTrainedTokenizerFast, tmp_path_factory
) -> Iterator[VLLMEngine]:
    if subprocess.run([settings.interpreter, "-c", "import torchvision"], capture_output=True).returncode:
        pytest.skip("vLLM's vision models need torchvision in its environment")
    family = QWEN3 if model.config.model_type == "qwen3_vl" else QWEN2_5
    folder: Path = tmp_path_factory.mktemp("processor")
    images = image_settings(family) | {"processor_class": _PROCESSORS[model.config.model_type]}
    videos = images | {"video_processor_type": family.video_processor}
    (folder / "preprocessor_config.json").write_text(json.dumps(images))
    (folder / "video_preprocessor_config.json").write_text(json.dumps(videos))
    seeing = replace(settings, processor_from=str(folder))
    engine = VLLMEngine(seeing, model.config, words, frozenset({EOS}))
    try:
        engine.load_weights(lambda: folder_weights(model), 0)
        yield engine
    finally:
        engine.close()


_PROCESSORS = {"qwen2_vl": "Qwen2VLProcessor", "qwen2_5_vl": "Qwen2_5_VLProcessor", "qwen3_vl": "Qwen3VLProcessor"}


@torch.no_grad()
def _log_probs(model: PreTrainedModel, sample: Sample, temperature: float) -> list[float]:
    """By transformers alone, among the tokens that may be written: so vLLM counts them."""
    logits = theirs(model, sample.prompt, sample.ids) / temperature
    logits[:, FORBIDDEN] = -torch.inf
    return torch.log_softmax(logits, dim=-1)[torch.arange(len(sample.ids)), torch.tensor(sample.ids)].tolist()


def _prompts(model: PreTrainedModel) -> list[Prompt]:
    """Text, images, several images, and videos that vLLM numbers as transformers does: all of Qwen3-VL's are."""
    prompts = mixed_prompts(model.config)
    if model.config.model_type != "qwen3_vl":
        prompts[3] = vision_prompt(model.config, videos=[(2, 4, 8)], seed=4)
        prompts[4] = vision_prompt(model.config, images=[(1, 2, 4)], videos=[(2, 8, 4)], seed=5)
    return prompts


def test_greedy_is_that_of_the_native_engine(
    engine: VLLMEngine, model: PreTrainedModel, plain: PreTrainedModel, words: PreTrainedTokenizerFast
) -> None:
    native = NativeEngine(model, words, frozenset({EOS})).generate(_prompts(model), GREEDY)
    samples = engine.generate(_prompts(model), GREEDY)
    assert [sample.ids for sample in samples] == [sample.ids for sample in native]
    for sample in samples:
        assert sample.log_probs == pytest.approx(_log_probs(plain, sample, 1.0), abs=1e-3)


def test_samples_see_their_own_images(engine: VLLMEngine, model: PreTrainedModel, plain: PreTrainedModel) -> None:
    params = SamplingParams(n=3, temperature=0.7, max_tokens=9, seed=3, ignore_eos=True)
    samples = engine.generate(_prompts(model), params)
    assert len({tuple(sample.ids) for sample in samples}) > len(_prompts(model))
    for sample in samples:
        assert sample.log_probs == pytest.approx(_log_probs(plain, sample, 0.7), abs=1e-3)


def test_new_weights_look_at_an_image_anew(engine: VLLMEngine, model: PreTrainedModel, plain: PreTrainedModel) -> None:
    """What the vision tower made of an image belongs to the weights that it had."""
    before = engine.generate(_prompts(model), GREEDY)
    for each in (model, plain):
        with torch.no_grad():
            for parameter in each.base_model.visual.parameters():
                parameter.mul_(-0.5)
    engine.load_weights(lambda: folder_weights(model), 1)
    after = engine.generate(_prompts(model), GREEDY)
    assert [sample.ids for sample in after[1:5]] != [sample.ids for sample in before[1:5]]
    for sample in after:
        assert sample.log_probs == pytest.approx(_log_probs(plain, sample, 1.0), abs=1e-3)


def test_placeholders_are_never_sampled(engine: VLLMEngine, model: PreTrainedModel) -> None:
    with torch.no_grad():
        model.lm_head.weight[FORBIDDEN] *= 20  # by themselves they would be most of what is sampled
    engine.load_weights(lambda: folder_weights(model), 2)
    for temperature in (0.0, 1.0):
        params = SamplingParams(n=4, temperature=temperature, max_tokens=6, ignore_eos=True)
        written = {token for sample in engine.generate(_prompts(model), params) for token in sample.ids}
        assert not written & {IMAGE, VIDEO, *FORBIDDEN}
