"""`worker.reward.*`: the function that scores samples, and what happens when it fails."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from whet.config.keys import about, key


@dataclass
class RewardConfig:
    """A user's function and the limits it runs under."""

    reward_function: str | None = key(None, "path.py:function that scores samples; the function defaults to main")
    reward_function_kwargs: dict[str, Any] = field(
        default_factory=dict, metadata=about("further arguments for the function")
    )
    reward_type: str | None = key(
        None, "whether the function takes all samples or one; null = detect", choices=("batch", "sequential")
    )
    timeout: float = key(30.0, "seconds a sample may take", above=0)
    fallback: float = key(0.0, "score of a sample whose reward failed")
    skip_special_tokens: bool = key(True, "leave special tokens out of the text that the function reads")
    num_cpus: int = key(2, "processes that score samples", least=1)
