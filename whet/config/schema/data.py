"""`data.*`: which prompts, how they are read and in what batches they come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from whet.config.keys import LARGEST_SEED, about, key, section
from whet.config.registry import Registry

ROWS = Registry("data.train_files", "whet.envs.adapters", "ROWS")  # adapters that generate rows: NAME:ARGUMENT@1000


@dataclass(frozen=True)
class CurriculumConfig:
    """Prompts by how often they are solved."""

    enable: bool = key(False, "draw prompts that are solved about half of the time more often than others")
    explore: float = key(0.05, "added to the weight sqrt(p(1-p)) of every prompt, p its pass rate", above=0)
    decay: float = key(0.875, "share of what is known of a prompt that is kept when it is drawn again", least=0, most=1)
    retire_at: float | None = key(
        None, "prompts with this share of solved samples are drawn no more; null = none", above=0, most=1
    )
    retire_after: int = key(8, "samples of a prompt, decayed, before it can be retired", least=1)

    @property
    def active(self) -> bool:
        """True if pass rates decide what is drawn."""
        return self.enable or self.retire_at is not None


@dataclass(frozen=True)
class DataConfig:
    """Source of prompts, and lengths of prompts and responses."""

    train_files: str = key(
        "", "training data: files, folders, hub datasets with an optional @split or generated rows, commas between"
    )
    val_files: str = key("", "validation data, named like train_files")
    max_train_rows: int | None = key(None, "use the first so many rows of train_files; null = all", least=1)
    max_val_rows: int | None = key(None, "use the first so many rows of val_files; null = all", least=1)
    prompt_key: str = key("prompt", "column that holds the prompt")
    answer_key: str = key("answer", "column that holds the ground truth for the reward function")
    image_key: str = key("images", "column that holds the prompt's images")
    video_key: str = key("videos", "column that holds the prompt's videos")
    image_dir: str | None = key(None, "folder that relative image and video paths start from")
    video_fps: float = key(2.0, "frames per second taken from a video", above=0, most=1000)
    max_prompt_length: int = key(512, "longest prompt in tokens", least=1, most=10_000_000)
    max_response_length: int = key(512, "longest response in tokens", least=1, most=10_000_000)
    rollout_batch_size: int = key(512, "prompts per training step", least=1, most=10_000_000)
    mini_rollout_batch_size: int | None = key(
        None, "prompts sampled at a time; null = rollout_batch_size", least=1, most=10_000_000
    )
    val_batch_size: int = key(-1, "prompts validated at a time; -1 = all at once", least=1, most=10_000_000, also=(-1,))
    format_prompt: str | None = key(None, "Jinja file that turns a row into the prompt's text", prose=True)
    override_chat_template: str | None = key(
        None, "chat template used instead of the tokenizer's: a file or its text", prose=True
    )
    chat_template_args: dict[str, Any] = field(
        default_factory=dict, metadata=about("variables of the chat template, such as {enable_thinking: false}")
    )
    curriculum: CurriculumConfig = field(
        default_factory=CurriculumConfig, metadata=section("which prompts are drawn, by how often they are solved")
    )
    shuffle: bool = key(True, "shuffle the training data anew in each epoch")
    seed: int = key(1, "seed of the shuffle", least=0, most=LARGEST_SEED)
    min_pixels: int | None = key(262144, "smaller images are enlarged to this many pixels", least=1, most=100_000_000)
    max_pixels: int | None = key(4194304, "larger images are shrunk to this many pixels", least=1)
    on_bad_media: str = key(
        "stop", "rows with unusable images or videos: stop before training, or leave them out", choices=("stop", "skip")
    )
    check_media: str = key(
        "header", "what is read of images before training: headers, or all of them", choices=("header", "full")
    )
    filter_overlong_prompts: bool = key(
        True, "leave out prompts longer than max_prompt_length instead of refusing them"
    )
    filter_overlong_prompts_workers: int = key(16, "processes that measure prompts for that filter", least=1, most=1024)
