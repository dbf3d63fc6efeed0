"""`worker.reward.*`: the function that scores samples, and what happens when it fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from whet.config.keys import about, key, section
from whet.config.schema.reward_terms import JudgeConfig, RewardModelConfig

TERMS = ("model", "judge")  # parts of `combine` that are no functions


@dataclass(frozen=True)
class OverlongBufferConfig:
    """DAPO's soft penalty: responses that end in the last `len` tokens they may have lose reward."""

    enable: bool = key(False, "take reward from responses that come close to max_response_length (DAPO)")
    len: int = key(0, "last tokens of max_response_length in which the penalty grows", least=0)
    penalty_factor: float = key(1.0, "the penalty at max_response_length", least=0, most=1_000_000)


@dataclass(frozen=True)
class RemoteRewardConfig:
    """Requests to the server of `worker.reward.url`."""

    token_env: str = key(
        "WHET_REWARD_TOKEN", "environment variable with the bearer token; none is sent if it is not set"
    )
    retries: int = key(3, "further attempts where the server fails or is busy, after growing pauses", least=0, most=100)
    requests_per_second: float | None = key(None, "most requests a second, of all processes; null = no limit", above=0)
    tokens_per_second: float | None = key(
        None, "most response tokens a second, of all processes; null = no limit", above=0
    )


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
    combine: dict[str, Any] = field(
        default_factory=dict,
        metadata=about("weights of several rewards, such as {gsm8k: 1.0, mine.py:extra: 0.5, model: 0.1}"),
    )
    url: str | None = key(None, "address of a server that scores samples in place of a function")
    remote: RemoteRewardConfig = field(
        default_factory=RemoteRewardConfig, metadata=section("requests to worker.reward.url")
    )
    model: RewardModelConfig = field(
        default_factory=RewardModelConfig, metadata=section("a reward model, alone or as the part model of combine")
    )
    judge: JudgeConfig = field(
        default_factory=JudgeConfig, metadata=section("a judge, alone or as the part judge of combine")
    )
    manager: str | None = key(
        None,
        "verl's reward manager; batch takes all samples, the others one; yr is Skywork-OR1's",
        choices=("naive", "batch", "prime", "dapo", "yr"),
    )
    memory_limit_mb: int | None = key(
        None, "MB of memory that a reward process may use; null = no limit", least=64, most=16_777_216
    )
    timeout: float = key(30.0, "seconds a sample may take", above=0)
    fallback: float = key(0.0, "score of a sample whose reward failed", least=-1_000_000, most=1_000_000)
    skip_special_tokens: bool = key(True, "leave special tokens out of the text that the function reads")
    num_cpus: int = key(2, "processes that score samples", least=1, most=1024)
    overlong_buffer: OverlongBufferConfig = field(
        default_factory=OverlongBufferConfig, metadata=section("a soft penalty for overlong responses; training only")
    )

    @property
    def parts(self) -> dict[str, Any]:
        """Weights of `combine` by reward; the loader reads the dots of `mine.py:f` as levels of a mapping."""
        return dict(_leaves(self.combine))

    def options_of(self, part: str) -> Any:
        """Options of a part of `combine`, or None."""
        found: Any = self.reward_function_kwargs
        if part in found:
            return found[part]
        for name in part.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        return found

    @property
    def is_named(self) -> bool:
        """True if a reward of any kind is set; else each row's data source chooses a scorer."""
        return bool(self.reward_function or self.combine or self.url or self.terms)

    @property
    def terms(self) -> tuple[str, ...]:
        """Models that score samples besides functions: "model", "judge"."""
        named = {"model": self.model.path, "judge": self.judge.base_url or self.judge.model_path}
        return tuple(name for name in TERMS if named[name])


def _leaves(tree: Mapping[Any, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
