"""The warm start of the built-in vision models: a plain supervised loop over pictures, of mixed quality.

Its first demonstrators look and its last ones mostly guess. What they leave is a model that answers in the right form
and could see, but says nearly anything: that looking pays is left for reinforcement learning to find. The loop goes
through transformers' own forward pass and image processor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from random import Random

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerFast
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from whet.assets.questions import IMAGE, VIDEO, Question, ask
from whet.assets.vision_model import IMAGE_PAD, QWEN3, VIDEO_PAD, VISION_END, VISION_START, Family, image_settings

INSTRUCTIONS = {"Answer: ": '\nBegin with "Answer:"'}  # by the stem that it asks for; sentences need none

# How the prompts that are shown divide among the tasks.
SHARES = {"count": 0.52, "locate": 0.14, "angle": 0.08, "more": 0.10, "motion": 0.16}
PROMPTS = 4000
STEPS = 500  # with demonstrators who look
GUESSING = 50  # and then with demonstrators who mostly guess
LOOKS = 0.2  # how often these look, of most models
BATCH = 32
PEAK_LR = 4e-3
LAST_FACTOR = 0.25  # of the peak, while they guess
WARMUP = 40
SAY_EVERY = 100
IGNORED = -100
FPS = 2.0  # data.video_fps: how fast the frames of the moving shape follow each other


@dataclass(slots=True)
class Shown:
    """A question as the model reads it."""

    question: Question
    ids: Tensor  # (P,)
    positions: Tensor  # (3, P)
    pixels: Tensor  # (patches, values of a patch)
    grids: Tensor  # (pictures, 3)


class Encoder:
    """Questions become token ids, patches and positions, by transformers' own rules."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, family: Family) -> None:
        settings = {
            k: v for k, v in image_settings(family).items() if k not in ("processor_class", "image_processor_type")
        }
        self._processor = Qwen2VLImageProcessorPil(**settings)
        self._model, self._tokenizer, self._family = model, tokenizer, family

    def __call__(self, question: Question) -> Shown:
        """Encode one question, without its answer."""
        if question.frames:
            pixels, grids = self._video(question.frames)
        else:
            found = self._processor(question.images, return_tensors="pt")
            pixels, grids = found["pixel_values"], found["image_grid_thw"]
        text = self._text(question, grids)
        ids = torch.tensor(self._tokenizer(text)["input_ids"])
        return Shown(question, ids, self._positions(ids, grids, bool(question.frames)), pixels, grids)

    def _video(self, frames: list[Image.Image]) -> tuple[Tensor, Tensor]:
        """A patch of a video spans two frames; the image processor fills both with the same picture."""
        found = self._processor(frames, return_tensors="np")
        _, height, width = found["image_grid_thw"][0]
        side = self._family.patch
        patches = found["pixel_values"].reshape(len(frames) // 2, 2, height * width, 3, 2, side, side)
        patches = np.stack([patches[:, 0, ..., 0, :, :], patches[:, 1, ..., 0, :, :]], axis=-3)
        grid = torch.tensor([[len(frames) // 2, int(height), int(width)]])
        return torch.from_numpy(np.ascontiguousarray(patches.reshape(-1, 3 * 2 * side * side))), grid

    def _text(self, question: Question, grids: Tensor) -> str:
        content = asked(question)
        for times, height, width in grids.tolist():
            many = height * width // 4
            if question.frames:
                content = content.replace(VIDEO, self._frames(times, many), 1)
            else:
                content = content.replace(IMAGE, VISION_START + IMAGE_PAD * many + VISION_END, 1)
        turn = [{"role": "user", "content": content}]
        text = self._tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
        assert isinstance(text, str)
        return text

    def _frames(self, times: int, many: int) -> str:
        if self._family is not QWEN3:
            return VISION_START + VIDEO_PAD * (times * many) + VISION_END
        # Qwen3-VL writes before each pair of frames when it was seen: the middle of the two.
        pair = VISION_START + VIDEO_PAD * many + VISION_END
        return "".join(f"<{(2 * i + 0.5) / FPS:.1f} seconds>{pair}" for i in range(times))

    def _positions(self, ids: Tensor, grids: Tensor, video: bool) -> Tensor:
        config = self._model.config
        kinds = (ids == config.image_token_id).int() + 2 * (ids == config.video_token_id).int()
        which = {"video_grid_thw": grids, "second_per_grid_ts": [2 / FPS]} if video else {"image_grid_thw": grids}
        return self._model.model.get_rope_index(ids[None], mm_token_type_ids=kinds[None], **which)[0][:, 0]


def collate(shown: list[Shown], replies: list[list[int]], pad: int) -> tuple[dict[str, Tensor], Tensor]:
    """The forward pass's arguments, right-padded, and labels (B, T): the replies' ids, IGNORED elsewhere."""
    ids, labels, positions = [], [], []
    for one, reply in zip(shown, replies):
        said = torch.tensor(reply)
        after = one.positions.max() + 1 + torch.arange(len(reply))
        ids.append(torch.cat([one.ids, said]))
        labels.append(torch.cat([torch.full_like(one.ids, IGNORED), said]))
        positions.append(torch.cat([one.positions, after.expand(3, -1)], dim=1).T)
    inputs = {
        "input_ids": pad_sequence(ids, batch_first=True, padding_value=pad),
        "position_ids": pad_sequence(positions, batch_first=True).permute(2, 0, 1),
    }
    for frames, pixels, grids in (
        (False, "pixel_values", "image_grid_thw"),
        (True, "pixel_values_videos", "video_grid_thw"),
    ):
        some = [one for one in shown if bool(one.question.frames) is frames]
        if some:
            inputs[pixels] = torch.cat([one.pixels for one in some])
            inputs[grids] = torch.cat([one.grids for one in some])
    return inputs, pad_sequence(labels, batch_first=True, padding_value=IGNORED)


def asked(question: Question) -> str:
    """The problem with the instruction that examples/format_prompt/shapes.jinja adds."""
    return question.problem + INSTRUCTIONS.get(question.stem, "")


def prompts(seed: int, number: int, hidden: Collection[bytes]) -> Iterator[Question]:
    """Questions of all tasks, mixed, none about hidden pictures."""
    rng = Random(seed)
    for task in rng.choices(list(SHARES), list(SHARES.values()), k=number):
        yield ask(task, rng, hidden)


def lr_factor(step: int) -> float:
    """Linear warmup, then linear decay to zero; and a quarter of the peak for those who guess."""
    if step >= STEPS:
        return LAST_FACTOR
    return min((step + 1) / WARMUP, (STEPS - step) / (STEPS - WARMUP))


def teach(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    family: Family,
    questions: Iterable[Question],
    seed: int,
    say: Callable[[str], None],
    last_looks: float = LOOKS,
) -> None:
    """Supervised learning on demonstrators' replies, in place; the last of them look with probability `last_looks`."""
    encode = Encoder(model, tokenizer, family)
    pool = list(questions)
    rng = Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_LR, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_factor)
    model.train()
    for step in range(1, STEPS + GUESSING + 1):
        shown = [encode(question) for question in rng.sample(pool, BATCH)]
        looks = 1.0 if step <= STEPS else last_looks
        texts = [one.question.reply(rng, looks) for one in shown]
        replies = [[*ids, tokenizer.eos_token_id] for ids in tokenizer(texts)["input_ids"]]
        inputs, labels = collate(shown, replies, tokenizer.pad_token_id)
        # Padding is on the right, where causal attention keeps it out of sight: no mask is needed.
        hidden = model.model(**inputs, use_cache=False).last_hidden_state[:, :-1]
        targets = labels[:, 1:]
        written = targets != IGNORED
        loss = F.cross_entropy(model.lm_head(hidden[written]), targets[written])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step % SAY_EVERY == 0:
            say(f"  warm start {step}/{STEPS + GUESSING}: loss {loss.item():.3f}")
    model.eval()
