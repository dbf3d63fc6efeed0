"""Names and shapes of a model's tensors, in its modules and in its folder on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForTokenClassification, PretrainedConfig, PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from whet.errors import UserError
from whet.merge.safetensors_file import Entry
from whet.model.modality import language_class
from whet.model.trust import check_config, read_json

Shape = tuple[int, ...]
_SHOWN = 3  # names in a message
_VALUE_HEAD = "score.weight"  # of the critic of verl and EasyR1, which is a token classifier


def empty_model(folder: Path, names: list[str], trust_remote_code: bool = False) -> PreTrainedModel:
    """The model that a config.json describes, without weights; a critic where `names` have a value head."""
    # Every layer has weights: a config of more layers is of another model, and building them would take for ever.
    raw = read_json(folder / "config.json")
    check_config(folder / "config.json", raw, len(names))
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
        kind: Any = AutoModelForTokenClassification if _VALUE_HEAD in names else language_class(config)
        if kind is AutoModelForTokenClassification:
            config.num_labels = 1
        with torch.device("meta"):
            model: PreTrainedModel = kind.from_config(
                config, attn_implementation="eager", trust_remote_code=trust_remote_code
            )
    except Exception as error:  # configs of other versions and code of the hub raise anything
        hint = "" if trust_remote_code or "auto_map" not in raw else " (its code is run with --trust-remote-code)"
        reason = str(error).partition("\n")[0]
        raise UserError(f"{folder / 'config.json'} describes no model that can be made: {reason}{hint}") from None
    model.tie_weights()
    return model


class Weights(Protocol):
    """Source of whole tensors."""

    @property
    def names(self) -> list[str]:
        """Names of all tensors, as the model's modules had them."""
        ...

    def dtype(self, name: str) -> torch.dtype:
        """The dtype of a tensor."""
        ...

    def shape(self, name: str, expected: Sequence[int]) -> Shape:
        """The shape of a tensor that should have the shape `expected`."""
        ...

    def tensor(self, name: str, expected: Sequence[int]) -> Tensor:
        """The tensor itself."""
        ...


class Layout:
    """Mapping of a checkpoint's tensors to those of a Hugging Face folder.

    A checkpoint has the names of modules (some models hold experts otherwise than their folders do), or those of the
    folder, where it was written by a version of transformers whose modules were named and held like the folder.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        state = dict(model.state_dict())
        once = {name for name, _ in model.named_parameters()}
        every: dict[int, list[str]] = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            every.setdefault(id(parameter), []).append(name)
        self._twins = {name: group for group in every.values() for name in group if len(group) > 1}
        shared = set(self._twins) - once
        self._modules = {name: tensor for name, tensor in state.items() if name not in shared}
        self._folder = revert_weight_conversion(model, dict(self._modules))
        self._all = {name: tuple(tensor.shape) for source in (state, self._folder) for name, tensor in source.items()}

    def shape(self, name: str) -> Shape:
        """The shape that a tensor should have, or () where the model has none of that name."""
        return self._all.get(name, ())

    def entries(self, weights: Weights, where: Path) -> Iterator[Entry]:
        """Yield the tensors of the folder from the weights in `where`; those of one module follow each other."""
        names = [self._once(name) for name in weights.names]
        strange = sorted(name for name in names if name not in self._all)
        if strange:
            raise UserError(f"{where} holds {_some(strange)}, which the model of config.json does not have")
        for name in weights.names:
            found, wanted = weights.shape(name, self.shape(name)), self.shape(name)
            if found != wanted:
                raise UserError(
                    f"{where}: {name} has the shape {found}, and in the model of config.json {wanted}; that config is "
                    "of another model"
                )
        if set(names) <= self._modules.keys():
            self._require(self._modules.keys() - set(names), where)
            yield from self._converted(weights)
            return
        self._require(self._folder.keys() - set(names), where)
        for name in sorted(self._folder):
            shape = self.shape(name)
            yield Entry(name, shape, weights.dtype(name), partial(weights.tensor, name, shape))

    def _require(self, missing: set[str], where: Path) -> None:
        if missing:
            raise UserError(
                f"{where} holds no weights for {_some(sorted(missing))}, which the model of config.json has"
            )

    def _once(self, name: str) -> str:
        """The name under which a folder has a tied tensor."""
        return next((twin for twin in self._twins.get(name, [name]) if twin in self._modules), name)

    def _converted(self, weights: Weights) -> Iterator[Entry]:
        """Each tensor of the modules turned into those of the folder; one turned last is kept for its neighbours."""
        sources = {name: [each for each in weights.names if self._once(each) == name] for name in self._modules}

        @lru_cache(maxsize=1)
        def turned(name: str) -> dict[str, Tensor]:
            return revert_weight_conversion(self._model, {name: self._agreed(weights, sources[name])})

        alone = {name: revert_weight_conversion(self._model, {name: meta}) for name, meta in self._modules.items()}
        if {target for made in alone.values() for target in made} != self._folder.keys():
            # Several tensors of the modules make one of the folder: all of them are needed at once.
            state = {name: self._agreed(weights, sources[name]) for name in self._modules}
            for target, tensor in sorted(revert_weight_conversion(self._model, state).items()):
                yield Entry(target, tuple(tensor.shape), tensor.dtype, partial(_same, tensor))
            return
        for name, made in alone.items():
            dtype = weights.dtype(sources[name][0])
            for target, meta in made.items():
                yield Entry(target, tuple(meta.shape), dtype, partial(_item, turned, name, target))

    def _agreed(self, weights: Weights, names: list[str]) -> Tensor:
        """A tensor that stands under all these names, which config.json ties."""
        first = weights.tensor(names[0], self.shape(names[0]))
        for other in names[1:]:
            if not torch.equal(first, weights.tensor(other, self.shape(other))):
                raise UserError(
                    f"{names[0]} and {other} are one tensor by config.json (tie_word_embeddings), but differ in the "
                    "checkpoint; correct config.json"
                )
        return first


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _item(turned: Callable[[str], dict[str, Tensor]], name: str, target: str) -> Tensor:
    return turned(name)[target]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
