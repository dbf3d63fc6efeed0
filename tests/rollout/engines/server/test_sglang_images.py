"""Images to SGLang, against a stand-in with a real vision-language model and the real image processor behind it."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from rollout.engines.server.stand_in import SGLangStandIn

from whet.assets.vision_model import QWEN2_5, make_vision_model, make_vision_tokenizer, save
from whet.errors import UserError
from whet.model.load import load_model, load_tokenizer
from whet.model.names import folder_weights
from whet.model.processor import Processor, load_processor
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.engine import NativeEngine
from whet.rollout.engines.openai.engine import OpenAIEngine
from whet.rollout.engines.server.client import Client
from whet.rollout.engines.sglang.engine import SGLangEngine
from whet.types import Media, Prompt

GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("vision")
    tokenizer = make_vision_tokenizer(["how many red shapes are there"] * 4, 300)
    torch.manual_seed(3)
    save(make_vision_model(tokenizer, QWEN2_5), tokenizer, QWEN2_5, path)
    return str(path)


@pytest.fixture(scope="module")
def policy(folder: str) -> Any:
    """Weights that the server was not started with, and in which images show."""
    model = load_model(folder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)), alpha=0.2)
    return model


@pytest.fixture(scope="module")
def processor(folder: str, policy: Any) -> Processor:
    found = load_processor(folder, policy.config, load_tokenizer(folder))
    assert found is not None
    return found


@pytest.fixture
def server(folder: str, processor: Processor) -> Iterator[SGLangStandIn]:
    stand_in = SGLangStandIn(load_model(folder), load_tokenizer(folder), processor=processor)
    yield stand_in
    stand_in.close()


@pytest.fixture
def engine(server: SGLangStandIn, folder: str, policy: Any, tmp_path: Path) -> Iterator[SGLangEngine]:
    tokenizer = load_tokenizer(folder)
    made = SGLangEngine(Client(server.address, None, 20.0), tokenizer, frozenset({2}), policy.config, folder=tmp_path)
    made.load_weights(lambda: folder_weights(policy), 1)
    yield made
    made.close()


def _picture(size: tuple[int, int], seed: int) -> Image.Image:
    noise = torch.randint(0, 256, (size[1], size[0], 3), generator=torch.Generator().manual_seed(seed))
    return Image.fromarray(noise.to(torch.uint8).numpy())


def _prompt(processor: Processor, *images: Image.Image) -> Prompt:
    text = "how many" + processor.image_place * len(images) + " red shapes"
    ids, inputs = processor.read(text, images, [], [], special=False)
    return Prompt(f"row {len(images)}", ids, text, media=Media(images=list(images), inputs=inputs) if images else None)


@pytest.fixture
def prompts(processor: Processor) -> list[Prompt]:
    first, second = _picture((56, 84), 1), _picture((112, 28), 2)
    return [_prompt(processor), _prompt(processor, first), _prompt(processor, first, second)]


def test_images_reach_the_server_as_the_learner_sees_them(engine, server, policy, folder, prompts) -> None:
    native = NativeEngine(policy, load_tokenizer(folder), frozenset({2})).generate(prompts, GREEDY)
    samples = engine.generate(prompts, GREEDY)
    assert [sample.ids for sample in samples] == [sample.ids for sample in native]
    for ours, theirs in zip(samples, native):
        assert ours.log_probs == pytest.approx(theirs.log_probs, abs=1e-4)
    bodies = {len(body.get("image_data", ())): body for body in server.bodies("/generate")}
    assert set(bodies) == {0, 1, 2}
    for prompt in prompts[1:]:
        assert prompt.media is not None
        body = bodies[len(prompt.media.images)]
        sent = [Image.open(io.BytesIO(base64.b64decode(each))) for each in body["image_data"]]
        assert [each.tobytes() for each in sent] == [each.tobytes() for each in prompt.media.images]
        assert body["input_ids"].count(policy.config.image_token_id) == len(sent)


def test_placeholders_are_forbidden(engine, server, policy, prompts) -> None:
    engine.generate(prompts[:1], GREEDY)
    (body,) = server.bodies("/generate")
    config = policy.config
    marks = (config.image_token_id, config.video_token_id, config.vision_start_token_id, config.vision_end_token_id)
    assert body["sampling_params"]["logit_bias"] == {str(token): -100.0 for token in sorted(marks)}


def test_a_server_that_gives_images_another_size_is_refused(engine, server, prompts, monkeypatch) -> None:
    monkeypatch.setattr(server.processor, "target_size", lambda size: (28, 28))
    with pytest.raises(UserError, match=r"row 1: the server read \d+ tokens where the learner has \d+.*max_pixels"):
        engine.generate(prompts[1:2], GREEDY)


def test_prompts_that_the_server_would_read_otherwise_are_refused_here(engine, server, prompts) -> None:
    image = prompts[1]
    split = [i for token in image.ids for i in ([token])]
    red = engine._pictures._tokenizer.encode("h") + engine._pictures._tokenizer.encode("o")  # "how" has a token
    for prompt, words in (
        (Prompt("row 7", [*red, *split], "", media=image.media), "row 7: .*as text again"),
        (Prompt("row 7", image.ids, "", media=Media(videos=[[1]])), "row 7: .*frames of a video"),
        (Prompt("row 7", image.ids, "", media=Media(images=[])), "row 7: 1 places for images in the prompt, and 0"),
    ):
        with pytest.raises(UserError, match=words):
            engine.generate([prompt], GREEDY)
    assert "/generate" not in server.paths()


def test_other_servers_refuse_images(folder, prompts) -> None:
    engine = OpenAIEngine(Client("http://127.0.0.1:9"), load_tokenizer(folder), frozenset({2}))
    with pytest.raises(UserError, match=r"row 1: images and videos do not reach a server of kind openai.*mode=process"):
        engine.generate(prompts[1:2], GREEDY)
    engine.close()
