"""The folder of a reward model, read before any weight: its kind, its labels and its length."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from transformers import AutoConfig, PretrainedConfig, PreTrainedTokenizerBase

from whet.errors import UserError
from whet.model.load import load_tokenizer
from whet.model.trust import about, check_model

if TYPE_CHECKING:
    from whet.config.schema.reward_terms import RewardModelConfig

KEY = "worker.reward.model"
VALUE_HEAD = "value_head.safetensors"  # beside the weights of a critic that whet has trained
LABELS_SHOWN = 8
Kind = Literal["sequence", "token", "causal", "value"]
_AUTO: dict[str, Kind] = {
    "ForSequenceClassification": "sequence",
    "ForTokenClassification": "token",
    "ForCausalLM": "causal",
}


@dataclass(frozen=True)
class RewardFolder:
    """Everything but the weights."""

    path: str
    kind: Kind
    config: PretrainedConfig
    tokenizer: PreTrainedTokenizerBase
    label: int  # column of the logits that is the score
    longest: int | None  # tokens that it can read; None where its config does not say

    @property
    def scores_steps(self) -> bool:
        """True if it has a score for every step."""
        return self.kind in ("token", "causal")


def read_folder(path: str, settings: RewardModelConfig, tokenizer_path: str | None = None) -> RewardFolder:
    """Read and check what `worker.reward.model` names; UserError where it cannot be a reward model."""
    key = f"{KEY}.path"
    with about(key):
        check_model(path)
    try:
        config = AutoConfig.from_pretrained(path, trust_remote_code=settings.trust_remote_code)
    except Exception as error:  # files of strangers, read by code of transformers or of theirs
        raise UserError(f"{key}: no model could be read from {path}: {type(error).__name__}: {error}") from None
    kind = _kind(path, config, settings)
    tokenizer = load_tokenizer(
        tokenizer_path or path,
        settings.trust_remote_code,
        f"{KEY}.tokenizer_path" if tokenizer_path else key,
    )
    text = config.get_text_config()
    if len(tokenizer) > text.vocab_size:
        raise UserError(
            f"{KEY}: the tokenizer has {len(tokenizer)} tokens, the model only {text.vocab_size}: they do not belong "
            f"together; name its own by {KEY}.tokenizer_path"
        )
    longest = getattr(text, "max_position_embeddings", None)
    longest = longest if isinstance(longest, int) and longest > 0 else None
    if settings.max_length is not None and longest is not None and settings.max_length > longest:
        raise UserError(f"{KEY}.max_length={settings.max_length}: the model's positions end at {longest}")
    return RewardFolder(path, kind, config, tokenizer, _label(path, kind, config, settings), longest)


def _kind(path: str, config: PretrainedConfig, settings: RewardModelConfig) -> Kind:
    names = list(config.architectures or ())
    if settings.trust_remote_code:
        names += list(getattr(config, "auto_map", None) or {})
    if (Path(path) / VALUE_HEAD).is_file():
        return "value"
    kinds = {kind for name in names for end, kind in _AUTO.items() if name.endswith(end)}
    for kind in ("sequence", "token"):
        if kind in kinds:
            return kind  # type: ignore[return-value]
    if "causal" in kinds and settings.steps.good is not None:
        if settings.steps.mark is None:
            raise UserError(f"{KEY}.steps.good scores steps by a causal model, which needs {KEY}.steps.mark to read at")
        return "causal"
    shown = ", ".join(map(str, names)) or "no architecture"
    raise UserError(
        f"{KEY}.path: {path} holds {shown}, which is no reward model: expected ...ForSequenceClassification (one "
        f"score), ...ForTokenClassification (a score for each step), a critic that whet has saved, or a causal "
        f"model with {KEY}.steps.mark, good and bad"
    )


def _label(path: str, kind: Kind, config: PretrainedConfig, settings: RewardModelConfig) -> int:
    if kind in ("causal", "value"):
        if settings.label is not None:
            raise UserError(f"{KEY}.label={settings.label}: {path} has no labels to choose from; leave it out")
        return 0
    count = int(config.num_labels or 0)
    if settings.label is None:
        if count != 1:
            names: dict[Any, Any] = config.id2label or {}
            shown = ", ".join(f"{number}: {name}" for number, name in list(names.items())[:LABELS_SHOWN])
            raise UserError(
                f"{KEY}.path: {path} has {count} labels ({shown}), a reward model one: say by {KEY}.label which of "
                "them is the score"
            )
        return 0
    if settings.label >= count:
        raise UserError(f"{KEY}.label={settings.label}: {path} has {count} labels, numbered from 0")
    return settings.label


def piece_of(tokenizer: PreTrainedTokenizerBase) -> Any:
    """Return the function that gives the text of a token, nothing for special ones."""
    known: dict[int, str] = {}

    def piece(token: int) -> str:
        if token not in known:
            known[token] = str(tokenizer.decode([token], skip_special_tokens=True))
        return known[token]

    return piece


def token_of(tokenizer: PreTrainedTokenizerBase, text: str, key: str) -> int:
    """Return the id of a text that must be one token; UserError names the key."""
    found = tokenizer.convert_tokens_to_ids(text)
    if isinstance(found, int) and found != tokenizer.unk_token_id:
        return found
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    if len(ids) == 1 and ids[0] != tokenizer.unk_token_id:
        return int(ids[0])
    raise UserError(f"{key}={text!r} is no token of the reward model's tokenizer, but {len(ids)}")
