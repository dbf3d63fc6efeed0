"""Images that a harness sends, and chats with images that a template writes anew: the learner sees the same."""

from __future__ import annotations

import base64
import io
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from rollout.gallery import Gallery

from whet.assets import builtin
from whet.assets.vision_model import CHAT_TEMPLATE
from whet.chat.messages import Parsed
from whet.config.schema.data import DataConfig
from whet.data.observed import ObservedImages
from whet.envs.harness.programs import FunctionProgram
from whet.envs.harness.server import SessionServer
from whet.envs.host import EnvHost
from whet.envs.session import EnvSession
from whet.learn.scoring import score
from whet.model.load import load_model, load_model_config, load_tokenizer
from whet.model.processor import load_processor
from whet.rollout.collector import Rollout
from whet.rollout.conversation import Conversations
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.engine import NativeEngine
from whet.rollout.episodes import Episodes, Limits, play_all
from whet.rollout.harness import Harness, HarnessEpisodes
from whet.types import Media, Prompt, Sample

LIMITS = Limits(8, 600, 5)
COUNTED = "{{- messages | length ~ ' messages\n' -}}" + CHAT_TEMPLATE  # which makes another beginning of every turn
ROW = Prompt("row", [1], "", messages=[{"role": "user", "content": "How many red shapes are there?"}])


class Stage:
    """A vision model with an endpoint, and the failures that were reported."""

    def __init__(self, folder: str) -> None:
        config, self.tokenizer = load_model_config(folder), load_tokenizer(folder)
        processor = load_processor(folder, config, self.tokenizer)
        assert processor is not None
        self.processor, self.model, self.place = processor, load_model(folder, torch.float32), config.image_token_id
        self.ends = frozenset([self.tokenizer.eos_token_id])
        self.reader = ObservedImages(processor, DataConfig(min_pixels=None, max_pixels=4000), speaks_chat=True)
        self.server, self.host, self.failures = SessionServer(), EnvHost(), []

    def engine(self) -> NativeEngine:
        return NativeEngine(self.model, self.tokenizer, self.ends)

    def shared(self, sees: bool = True, **keys: Any) -> Conversations:
        return Conversations(self.tokenizer, self.ends, 300, self.reader if sees else None, **keys)

    def run(self, program: Callable[..., Any], prompt: Prompt, n: int = 1, **keys: Any) -> list[Sample]:
        """Play samples with a harness."""
        harness = Harness(FunctionProgram(program), self.server, self.host, self.shared(**keys), Parsed, 60.0, True)
        return self.play(
            HarnessEpisodes(self.engine(), SamplingParams(seed=3), harness, LIMITS, _nothing, self.report), prompt, n
        )

    def play(self, rollout: Rollout, prompt: Prompt, n: int = 1) -> list[Sample]:
        self.failures.clear()
        return play_all(rollout, [prompt], n, [10], lambda done: None)

    def report(self, prompt: Prompt, failure: Any) -> None:
        self.failures.append(str(failure))

    def check(self, samples: list[Sample]) -> None:
        """Compare log-probs of the engine with the learner's, which packs branches and prompts."""
        with torch.no_grad():
            learned = score(self.model, samples, 1.0, share_prefix=True).log_probs_BT
        for sample, row_T in zip(samples, learned):
            drawn, own = torch.tensor(sample.mask).bool(), torch.tensor(sample.log_probs)
            torch.testing.assert_close(row_T[: len(own)][drawn], own[drawn], atol=1e-4, rtol=1e-4)
            for segment in sample.segments:
                shown = 0 if segment.media is None else int(segment.media.inputs["image_grid_thw"].prod(1).sum()) // 4
                assert segment.ids.count(self.place) == shown


def _nothing(samples: list[Sample]) -> None:
    pass


@pytest.fixture(scope="module")
def stage(whet_home: Path) -> Iterator[Stage]:
    made = Stage(str(builtin("whet/vision", print) / "model"))
    yield made
    made.host.close()
    made.server.close()


def png(colour: str, width: int = 56, height: int = 56) -> str:
    file = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(file, format="PNG")
    return base64.b64encode(file.getvalue()).decode()


def post(base_url: str, key: str, path: str, body: dict[str, Any]) -> Any:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(base_url + path, json.dumps({"model": "m", **body}).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def url_part(data: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def by_chat(base_url: str, api_key: str, row: dict[str, Any]) -> float:
    parts = [url_part(png("red")), {"type": "text", "text": "How many?"}]
    messages: list[Any] = [{"role": "user", "content": parts}]
    for colour, height in (("blue", 84), ("green", 112)):
        messages.append(post(base_url, api_key, "/chat/completions", {"messages": messages})["choices"][0]["message"])
        messages.append(
            {"role": "user", "content": [{"type": "text", "text": "Now?"}, url_part(png(colour, 56, height))]}
        )
    post(base_url, api_key, "/chat/completions", {"messages": messages})
    return 1.0


def by_responses(base_url: str, api_key: str, row: dict[str, Any]) -> float:
    def asked(text: str, colour: str, height: int) -> dict[str, Any]:
        url = f"data:image/png;base64,{png(colour, 56, height)}"
        return {
            "role": "user",
            "content": [{"type": "input_text", "text": text}, {"type": "input_image", "image_url": url}],
        }

    said = post(base_url, api_key, "/responses", {"input": [asked("How many?", "red", 56)]})
    for colour, height in (("blue", 84), ("green", 112)):
        more = {"input": [asked("Now?", colour, height)], "previous_response_id": said["id"]}
        said = post(base_url, api_key, "/responses", more)
    return 1.0


def by_messages(base_url: str, api_key: str, row: dict[str, Any]) -> float:
    def asked(text: str, colour: str, height: int) -> dict[str, Any]:
        source = {"type": "base64", "media_type": "image/png", "data": png(colour, 56, height)}
        return {"role": "user", "content": [{"type": "image", "source": source}, {"type": "text", "text": text}]}

    messages = [asked("How many?", "red", 56)]
    for colour, height in (("blue", 84), ("green", 112)):
        said = post(base_url, api_key, "/messages", {"messages": messages, "max_tokens": 50})
        messages += [{"role": "assistant", "content": said["content"] or ""}, asked("Now?", colour, height)]
    counted = post(base_url, api_key, "/messages/count_tokens", {"messages": messages})
    said = post(base_url, api_key, "/messages", {"messages": messages, "max_tokens": 50})
    assert said["usage"]["input_tokens"] == counted["input_tokens"]
    return 1.0


@pytest.mark.parametrize("program", [by_chat, by_responses, by_messages])
def test_images_of_every_call_are_recorded_and_trained_on(stage: Stage, program: Callable[..., float]) -> None:
    samples = stage.run(program, ROW, n=2)
    assert not stage.failures
    assert samples[0].prompt is samples[1].prompt  # equal tokens and pixels
    for sample in samples:
        assert [segment.by_model for segment in sample.segments] == [True, False, True, False, True]
        media = [sample.prompt.media, *(segment.media for segment in sample.segments if not segment.by_model)]
        colours = [each.images[0].getpixel((5, 5)) for each in media if each is not None]
        assert colours == [(255, 0, 0), (0, 0, 255), (0, 128, 0)]
        assert not any(segment.restart for segment in sample.segments)
    stage.check(samples)


def test_every_branch_shows_the_images_of_its_own_conversation(stage: Stage) -> None:
    def branches(base_url: str, api_key: str, row: dict[str, Any]) -> float:
        first = {"role": "user", "content": [url_part(png("red"))]}
        said = post(base_url, api_key, "/chat/completions", {"messages": [first]})["choices"][0]["message"]
        for colours in (("blue",), ("green", "white")):  # the second goes back to the first turn, and on from there
            added = {"role": "user", "content": [url_part(png(colour, 84)) for colour in colours]}
            post(base_url, api_key, "/chat/completions", {"messages": [first, said, added]})
        other = {"role": "user", "content": [url_part(png("black"))]}  # equal tokens, another picture
        post(base_url, api_key, "/chat/completions", {"messages": [other, said, first]})
        return 1.0

    (sample,) = stage.run(branches, ROW)
    assert not stage.failures
    starts = [segment for segment in sample.segments if segment.restart]
    shown = [[image.getpixel((5, 5)) for image in segment.media.images] for segment in starts if segment.media]
    red, green, white, black = (255, 0, 0), (0, 128, 0), (255, 255, 255), (0, 0, 0)
    assert shown == [[red, green, white], [black, red]]
    stage.check([sample])


def test_a_template_that_writes_a_harness_s_turns_anew_shows_all_images_again(stage: Stage) -> None:
    (sample,) = stage.run(by_chat, ROW, chat_template=COUNTED)
    assert not stage.failures
    starts = [segment.media for segment in sample.segments if segment.restart]
    assert [len(media.images) for media in starts if media is not None] == [2, 3]
    stage.check([sample])


def test_a_template_that_writes_an_environment_s_turns_anew_shows_all_images_again(stage: Stage) -> None:
    rollout = Episodes(
        stage.engine(),
        SamplingParams(seed=2),
        lambda: EnvSession(Gallery, stage.host, 30.0),
        stage.shared(chat_template=COUNTED),
        LIMITS,
        _nothing,
        stage.report,
    )
    samples = stage.play(rollout, ROW, 2)
    assert not stage.failures
    for sample in samples:
        starts = [segment.media for segment in sample.segments if segment.restart]
        assert [len(media.images) for media in starts if media is not None] == [2, 3]
    stage.check(samples)


def test_a_row_s_images_come_back_as_they_were_given(stage: Stage) -> None:
    image = Image.effect_noise((56, 84), 90).convert("RGB")  # 4704 pixels: fitted once more it would be smaller
    text = stage.tokenizer.apply_chat_template(
        [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "How many?"}]}],
        add_generation_prompt=True,
        tokenize=False,
    )
    ids = stage.processor.expand(stage.tokenizer(text)["input_ids"], [image.size])
    media = Media([image], [], stage.processor.pixels([image], []))
    row = Prompt("row", ids, text, media=media, messages=[{"role": "user", "content": "<image>How many?"}])

    def sends_the_row(base_url: str, api_key: str, row: dict[str, Any]) -> float:
        post(base_url, api_key, "/chat/completions", {"messages": row["messages"]})
        return 1.0

    (sample,) = stage.run(sends_the_row, row)
    assert not stage.failures
    assert sample.prompt is row
    stage.check([sample])

    def sends_text(base_url: str, api_key: str, given: dict[str, Any]) -> float:
        with pytest.raises(urllib.error.HTTPError) as refused:
            post(base_url, api_key, "/chat/completions", {"messages": row.messages})
        assert "image_url" in json.load(refused.value)["error"]["message"]
        return sends_the_row(base_url, api_key, given)

    stage.run(sends_text, row)
    assert not stage.failures


def _refused(parts: list[Any], role: str = "user") -> Callable[..., str]:
    def run(base_url: str, api_key: str, row: dict[str, Any]) -> float:
        try:
            post(base_url, api_key, "/chat/completions", {"messages": [{"role": role, "content": parts}]})
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{error.code} {json.load(error)['error']['message']}") from None
        return 1.0

    return run  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("parts", "role", "said"),
    [
        ([{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}], "user", "data: URL"),
        ([{"type": "image_url", "image_url": {"url": "/etc/passwd"}}], "user", "data: URL"),
        ([{"type": "image_url", "image_url": {"url": "data:image/png;base64,%%%"}}], "user", "base64"),
        ([{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}], "user", "empty"),
        ([url_part(base64.b64encode(b"no picture at all").decode())], "user", "messages: an image is no picture"),
        ([{"type": "image_url"}], "user", "data: URL"),
        ([{"type": "input_audio"}], "user", "content[0]"),
        ([url_part(png("red"))], "system", "content[0]"),
    ],
)
def test_bad_images_are_refused_by_name(stage: Stage, parts: list[Any], role: str, said: str) -> None:
    stage.run(_refused(parts, role), ROW)
    (failure,) = stage.failures
    assert "400" in failure
    assert said in failure


def test_a_text_model_says_that_it_reads_no_images(stage: Stage) -> None:
    stage.run(_refused([url_part(png("red"))]), replace(ROW), sees=False)
    (failure,) = stage.failures
    assert "the model reads text only" in failure
