"""Episodes with images in observations: the engine reads them as the learner does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from rollout.gallery import Gallery

from whet.assets import builtin
from whet.config.schema.data import DataConfig
from whet.data.observed import ObservedImages
from whet.envs.host import EnvHost
from whet.envs.session import EnvSession
from whet.learn.scoring import score
from whet.model.load import load_model, load_model_config, load_tokenizer
from whet.model.processor import load_processor
from whet.rollout.conversation import Conversations
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.engine import NativeEngine
from whet.rollout.episodes import Episodes, Limits, play_all
from whet.types import Prompt


@pytest.fixture(scope="module")
def folder(whet_home: Path) -> str:
    return str(builtin("whet/vision", print) / "model")


def test_images_of_later_turns_are_read_as_the_learner_reads_them(folder: str) -> None:
    config, tokenizer = load_model_config(folder), load_tokenizer(folder)
    processor, model = load_processor(folder, config, tokenizer), load_model(folder, torch.float32)
    assert processor is not None
    end = tokenizer.eos_token_id
    reader = ObservedImages(processor, DataConfig(min_pixels=None, max_pixels=None), speaks_chat=True)
    host, failures = EnvHost(), []
    episodes = Episodes(
        NativeEngine(model, tokenizer, frozenset([end])),
        SamplingParams(seed=2),
        lambda: EnvSession(Gallery, host, 30.0),
        Conversations(tokenizer, frozenset([end]), 200, reader),
        Limits(5, 300, 6),
        lambda samples: None,
        lambda prompt, failure: failures.append(failure),
    )
    row = Prompt("row", [], "", messages=[{"role": "user", "content": "How many red shapes are there?"}])
    samples = play_all(episodes, [row], 3, [5], lambda n: None)
    host.close()
    assert not failures
    place = config.image_token_id
    for sample in samples:
        assert sample.turns == 3
        assert len(sample.prompt.media.images) == 1  # type: ignore[union-attr]
        observed = [segment for segment in sample.segments if not segment.by_model]
        for turn, segment in enumerate(observed, start=1):
            assert segment.media is not None
            grid = segment.media.inputs["image_grid_thw"].prod().item() // 4
            assert segment.ids.count(place) == grid == 4 * (2 + turn) // 2
    with torch.no_grad():
        learned = score(model, samples, 1.0, share_prefix=True).log_probs_BT
    for sample, row_T in zip(samples, learned):
        drawn = torch.tensor(sample.mask).bool()
        own = torch.tensor(sample.log_probs)
        torch.testing.assert_close(row_T[: len(own)][drawn], own[drawn], atol=1e-4, rtol=1e-4)
