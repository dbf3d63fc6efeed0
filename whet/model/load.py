"""Load tokenizers and models from a Hugging Face folder or hub id, to train and to sample from."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from whet.errors import UserError
from whet.model import attention
from whet.model.fused import decoder_of, fuse, is_exact
from whet.model.gathering import gathered_pass, local
from whet.model.modality import as_batch, language_class, vision_of
from whet.model.pass_modes import offloading_of
from whet.model.support import ACTOR, check_config, check_layers
from whet.model.trust import about, check_model, check_pickled_weights, check_tokenizer
from whet.model.unreadable import UNREADABLE, damage, described, read_error, tokenizer_error

if TYPE_CHECKING:
    from whet.model.routing import Routing
    from whet.model.vision import RowMedia

_DROPOUTS = ("dropout", "pdrop")  # how fields end that a model without dropout lacks


def _check_reachable(path: str) -> None:
    """Raise a `UserError` for a name that is no folder where the hub cannot be asked for it."""
    if not Path(path).is_dir():
        from whet.model.hub import check_reachable

        check_reachable(path)


def load_tokenizer(
    path: str, trust_remote_code: bool = False, key: str = "worker.actor.model.tokenizer_path"
) -> PreTrainedTokenizerBase:
    """The tokenizer of a model folder, with a padding token."""
    with about(key):
        _check_reachable(path)
        ignored = check_tokenizer(path)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code, **ignored)
    except Exception as error:  # the Rust side of tokenizers raises nothing more specific
        raise tokenizer_error(error, path, key) from None
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model_config(
    path: str, trust_remote_code: bool = False, override: dict[str, Any] | None = None, section: str = ACTOR
) -> PretrainedConfig:
    """The model's own config, read before any weight; `override` changes some of its values."""
    with about(f"{section}.model_path"):
        _check_reachable(path)
        check_model(path)
    try:
        config = AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code)
    except UNREADABLE as error:
        raise read_error(error, "model", path, f"{section}.model_path") from None
    for name, value in (override or {}).items():
        if not hasattr(config, name):
            if name.endswith(_DROPOUTS) and value == 0:  # DAPO's scripts name those of other families too
                continue
            raise UserError(f"{section}.override_config: {type(config).__name__} has no field {name!r}")
        try:
            setattr(config, name, value)
        except UNREADABLE as error:
            raise UserError(f"{section}.override_config.{name}={value}: {described(error)}") from None
    check_config(config, path, section)
    return config


def load_model(
    path: str,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    trust_remote_code: bool = False,
    override: dict[str, Any] | None = None,
    section: str = ACTOR,
) -> PreTrainedModel:
    """Load a causal or image-text model in evaluation mode, with whet's attention function registered.

    `section` is that of the config that names it, for messages.
    """
    return _load(None, path, dtype, device, trust_remote_code, override, section)


def load_backbone(
    path: str,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    trust_remote_code: bool = False,
    override: dict[str, Any] | None = None,
    section: str = "worker.critic.model",
) -> PreTrainedModel:
    """The same model without its output head, for one of another kind."""
    return _load(AutoModel, path, dtype, device, trust_remote_code, override, section)


def _load(
    kind: type[AutoModel] | None,
    path: str,
    dtype: torch.dtype,
    device: torch.device | str,
    trust_remote_code: bool,
    override: dict[str, Any] | None,
    section: str,
) -> PreTrainedModel:
    config = load_model_config(path, trust_remote_code, override, section)
    with about(f"{section}.model_path"):
        check_pickled_weights(path)
    try:
        loaded: Any = (kind or language_class(config)).from_pretrained(
            path,
            config=config,
            dtype=dtype,
            attn_implementation=attention.implementation(config),
            trust_remote_code=trust_remote_code,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # refused below, with their names
        )
    except UnpicklingError:
        raise UserError(
            f"{section}.model_path: the weights in {path} hold more than tensors, which reading them would run; save "
            "them as safetensors where you trust them"
        ) from None
    except UNREADABLE as error:
        raise UserError(
            f"{section}.model_path: the weights in {path} could not be loaded: {described(error)}"
        ) from None
    model: PreTrainedModel = loaded[0]
    mismatched = sorted(loaded[1]["mismatched_keys"], key=str)
    if mismatched:
        name, stored, wanted = mismatched[0]
        raise UserError(
            f"{section}.model_path: {path} holds {name} of shape {list(stored)}, where its config.json asks for "
            f"{list(wanted)} ({len(mismatched)} tensors differ); use the config.json that belongs to the weights"
        )
    missing = sorted(loaded[1]["missing_keys"])
    if missing:  # transformers would go on with random numbers in their place
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        names = ", ".join(missing[:3]) + more
        raise UserError(f"{section}.model_path: {path} holds no weights for {names}; use a complete model")
    cast(nn.Module, model).to(device)
    check_layers(model.eval(), path, section)
    fuse(model)
    return model


@dataclass(frozen=True, slots=True)
class Head:
    """Map from hidden states to logits: the output matrix and, for Gemma, a soft cap."""

    weight_VH: Tensor
    bias_V: Tensor | None
    softcap: float | None
    exact: bool = False  # the same bits for a row whatever the others are

    def logits(self, hidden_NH: Tensor) -> Tensor:
        """(N, V) in the dtype of the weights."""
        if self.exact:
            from whet.model.exact import exact_linear

            return exact_linear(hidden_NH, self.weight_VH, self.bias_V)
        logits = nn.functional.linear(hidden_NH, self.weight_VH, self.bias_V)
        if self.softcap is not None:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        return logits


def head_of(model: PreTrainedModel) -> Head:
    """The model's output head; the weights are the model's own, not a copy."""
    layer = model.get_output_embeddings()
    softcap = getattr(model.config.get_text_config(), "final_logit_softcapping", None)
    bias = getattr(layer, "bias", None)
    return Head(local(layer.weight), None if bias is None else local(bias), softcap, is_exact(model))


def hidden_states(
    model: PreTrainedModel,
    ids_N: Tensor,
    positions: Tensor,
    how: attention.Attention,
    media: RowMedia | None = None,
    routing: Routing | None = None,
) -> Tensor:
    """Last hidden states (N, H) of one packed row of tokens, before the output head.

    Positions are (N,), or (3, N) where images give tokens a time and a place. `media` is what the row shows of images;
    a row that shows none has none, or is empty where other ranks may have some. `routing` says or is told which experts
    tokens are sent to.
    """
    decoder, vision = decoder_of(model), None if media is None else vision_of(model)
    if decoder is not None and vision is None:
        return decoder.hidden_states(ids_N, positions, how, routing=routing)
    if decoder is not None and vision is not None and media is not None and vision.in_pieces:
        return decoder.hidden_states(ids_N, positions, how, vision.embed(ids_N, media), routing)

    def forward() -> Tensor:
        with _mode_of(model), offloading_of(model):
            if vision is not None and media is not None:
                return vision.hidden_states(ids_N, positions, how, media)
            ids, batch = ids_N.unsqueeze(0), as_batch(positions)
            given: dict[str, Any] = {"input_ids": ids, "position_ids": batch, "use_cache": False, "attention": how}
            if routing is not None:
                from whet.model.routing import hook_routers  # models without experts need none of it

                hook_routers(model)
                given["routing"] = routing
            return model.base_model(**given).last_hidden_state

    return gathered_pass(model, forward)[0]


def _mode_of(model: PreTrainedModel) -> AbstractContextManager[object]:
    if not is_exact(model):
        return nullcontext()
    from whet.model.exact import ExactMode

    return ExactMode()


def end_ids(path: str, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every token id that ends a response: those of generation_config.json and the tokenizer's own."""
    ids: set[int] = set()
    if tokenizer.eos_token_id is not None:
        ids.add(tokenizer.eos_token_id)
    try:
        eos = GenerationConfig.from_pretrained(path).eos_token_id
    except UNREADABLE as error:
        if not isinstance(error, OSError) or (Path(path) / "generation_config.json").is_file():
            raise UserError(f"{ACTOR}.model_path: {path}/generation_config.json could not be read: {error}") from None
        eos = None  # a folder without one
    found = eos if isinstance(eos, list) else [] if eos is None else [eos]
    if any(type(each) is not int for each in found):
        raise UserError(f"{ACTOR}.model_path: {path}/generation_config.json: eos_token_id={eos!r} is no token id")
    return frozenset(ids.union(found))


def count_parameters(path: str, section: str = ACTOR) -> int | None:
    """Parameters in the safetensors files of a local folder, read from their headers; None where there are none."""
    files = sorted(Path(path).glob("*.safetensors")) if Path(path).is_dir() else []
    total = 0
    for file in files:
        try:
            with safe_open(file, framework="pt") as tensors:
                total += sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise UserError(f"{section}.model_path: {damage(file, error)}") from None
    return total or None
