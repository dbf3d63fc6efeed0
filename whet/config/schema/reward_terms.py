"""`worker.reward.model.*` and `worker.reward.judge.*`: models that score samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from whet.config.keys import about, key, section

REDUCTIONS = ("mean", "min", "last", "product", "sum")
DTYPES = ("bf16", "fp32")


@dataclass(frozen=True)
class StepsConfig:
    """Steps of a response, for a model that scores each of them."""

    separator: str | None = key(None, "text that ends a step; null = an empty line", prose=True, blank=True)
    mark: str | None = key(None, "token put behind each step for the model to score; null = the step's own last token")
    good: str | None = key(None, "of a causal model: the token whose probability at the mark is the score", prose=True)
    bad: str | None = key(None, "of a causal model: the token that it is compared with", prose=True)
    reduce: str | None = key(
        None, "make one score of those of all steps; null = each step's last token earns its score", choices=REDUCTIONS
    )


@dataclass(frozen=True)
class RewardModelConfig:
    """A model with a head that scores whole responses, or their steps."""

    path: str | None = key(None, "folder or hub id of a reward model; null = none")
    tokenizer_path: str | None = key(None, "folder or hub id of its tokenizer; null = path")
    render: str = key(
        "auto",
        "it reads the policy's tokens, messages in its chat template, or template; auto: tokens if both share them",
        choices=("auto", "tokens", "chat", "text"),
    )
    template: str | None = key(None, "Jinja file that writes the text it reads; sees prompt, response and every column")
    label: int | None = key(None, "which of its labels is the score; null = the only one", least=0, most=100_000)
    activation: str = key("none", "function that makes a score of its logits", choices=("none", "sigmoid", "softmax"))
    steps: StepsConfig = field(default_factory=StepsConfig, metadata=section("steps, for models that score each"))
    max_length: int | None = key(
        None, "tokens that it reads; the beginning of longer ones is cut; null = as many as it can", least=8
    )
    micro_batch_tokens: int = key(16_384, "tokens of one forward pass, padding included", least=1, most=100_000_000)
    dtype: str | None = key(None, "precision of its weights; null = bf16 on a GPU, fp32 on a CPU", choices=DTYPES)
    device: str = key("auto", "device it runs on, such as cuda:1 or cpu; auto = the policy's")
    offload: bool = key(False, "keep it in host memory between scorings, which then wait for the whole batch")
    trust_remote_code: bool = key(False, "run Python code that comes with the model")


@dataclass(frozen=True)
class JudgeConfig:
    """A language model that is asked how good a response is."""

    base_url: str | None = key(
        None, "address of a server with OpenAI's API, up to /v1, such as http://127.0.0.1:8000/v1"
    )
    model: str | None = key(None, "the judge's name there; null = the first that the server lists")
    key_env: str = key("WHET_JUDGE_KEY", "environment variable that holds the server's API key")
    model_path: str | None = key(None, "folder or hub id of a judge that runs here, on whet's own engine")
    mode: str = key(
        "pointwise",
        "pointwise = a number for each response; pairwise = the share of comparisons that it wins",
        choices=("pointwise", "pairwise"),
    )
    rubric: str | None = key(
        None, "Jinja file that writes the question; sees prompt, messages, response, answer and every column"
    )
    system: str | None = key(None, "system message; null = the built-in one", prose=True)
    pattern: str | None = key(
        None, "regular expression whose last match is the verdict, its first group if it has one", prose=True
    )
    json_field: str | None = key(None, "field of the last JSON object in the judge's text that is the verdict")
    low: float = key(0.0, "verdict that scores 0", least=-1_000_000, most=1_000_000)
    high: float = key(10.0, "verdict that scores 1", least=-1_000_000, most=1_000_000)
    reference: str | None = key(
        None, "pairwise: column (or ground_truth) with a response to compare with; null = those of its group"
    )
    opponents: int | None = key(
        None, "pairwise: comparisons of each response with others of its group; null = all", least=1, most=10_000
    )
    swap: bool = key(True, "pairwise: ask in both orders, so that a liking for a place cancels out")
    temperature: float = key(0.0, "of the judge; 0 is greedy", least=0, most=100)
    max_tokens: int = key(512, "longest text of the judge", least=1, most=1_000_000)
    max_tokens_key: str = key(
        "max_tokens",
        "name under which max_tokens is sent",
        choices=("max_tokens", "max_completion_tokens"),
    )
    extra_body: dict[str, Any] = field(default_factory=dict, metadata=about("further fields of each request"))
    concurrency: int = key(16, "questions at once", least=1, most=10_000)
    requests_per_second: float | None = key(None, "most requests a second; null = no limit", above=0)
    tokens_per_second: float | None = key(
        None, "most tokens a second: a question's characters / 4, and max_tokens; null = no limit", above=0
    )
    retries: int = key(5, "further attempts where the server fails or is busy, after growing pauses", least=0, most=100)
    timeout: float = key(120.0, "seconds that one attempt may take", above=0, most=1_000_000)
    device: str = key("auto", "of model_path: device it runs on; auto = the policy's")
    dtype: str | None = key(None, "of model_path: precision; null = bf16 on a GPU, fp32 on a CPU", choices=DTYPES)
    gpu_memory_utilization: float = key(0.2, "of model_path: share of a GPU's memory for its cache", above=0, most=1)
    max_prompt_tokens: int = key(8192, "of model_path: longest question", least=8, most=10_000_000)
    trust_remote_code: bool = key(False, "of model_path: run Python code that comes with the model")
