"""`worker.reward.*`: the function that scores samples, and what happens when it fails."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from whet.config.keys import about, key, section


@dataclass(frozen=True)
class OverlongBufferConfig:
    """DAPO's soft penalty: responses that end in the last `len` tokens they may have lose reward."""

    enable: bool = key(False, "take reward from responses that come close to max_response_length (DAPO)")
    len: int = key(0, "last tokens of max_response_length in which the penalty grows", least=0)
    penalty_factor: float = key(1.0, "the penalty at max_response_length", least=0, most=1_000_000)


@dataclass(frozen=True)
class RewardConfig:
    """A user's function and the limits it runs under."""

    reward_function: str | None = key(
        None, "path.py:function (default main) or a scorer's name; null = a scorer for each row's data_source"
    )
    reward_function_kwargs: dict[str, Any] = field(
        default_factory=dict, metadata=about("further arguments for the function")
    )
    reward_type: str | None = key(
        None, "whether the function takes all samples or one; null = detect", choices=("batch", "sequential")
    )
    timeout: float = key(30.0, "seconds a sample may take", above=0)
    fallback: float = key(0.0, "score of a sample whose reward failed", least=-1_000_000, most=1_000_000)
    skip_special_tokens: bool = key(True, "leave special tokens out of the text that the function reads")
    num_cpus: int = key(2, "processes that score samples", least=1, most=1024)
    overlong_buffer: OverlongBufferConfig = field(
        default_factory=OverlongBufferConfig, metadata=section("a soft penalty for overlong responses; training only")
    )
