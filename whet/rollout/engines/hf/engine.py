"""The reference engine: plain `generate` of transformers, one padded batch a call.

Slow and simple on purpose: it is what the native engine is compared with. Its random numbers are torch's own, seeded
a call at a time, so a sample depends on its batch here. Log-probs come from the logits that `generate` returns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.generation import GenerateDecoderOnlyOutput, StoppingCriteria, StoppingCriteriaList

from whet.errors import DivergedError
from whet.model import attention
from whet.model.modality import check_prompt, placeholder_ids, vision_of
from whet.model.vision import TIMES
from whet.rollout.batch_engine import BatchEngine
from whet.rollout.engine import Begun, Progress, SamplingParams, Start, begin, ids_of
from whet.rollout.engines.hf.spec import CAPABILITIES
from whet.rollout.uniforms import stream_keys
from whet.rollout.whole import refuse_params
from whet.types import FinishReason, Prompt, Sample


@dataclass(frozen=True, slots=True)
class _Row:
    """One sample of a batch."""

    begun: Begun
    index: int  # which of the start's n samples
    sample_id: int


class HFEngine(BatchEngine):
    """`model.generate` behind the Engine protocol."""

    capabilities = CAPABILITIES

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        end_ids: frozenset[int],
        max_num_seqs: int = 64,
    ) -> None:
        super().__init__()
        self._model, self._tokenizer, self._end_ids = model, tokenizer, end_ids
        self._max_num_seqs = max_num_seqs
        self._stop_early: _Aborted | None = None  # while a batch is being sampled

    def generate(
        self,
        prompts: Sequence[Start],
        params: SamplingParams,
        sample_ids: Sequence[int] | None = None,
        progress: Progress | None = None,
    ) -> list[Sample]:
        """Return n samples for each start, in the order of the starts."""
        refuse_params(params, "hf")
        ids = ids_of(prompts, params, sample_ids)
        begun = [begin(prompt) for prompt in prompts]
        rows = [_Row(b, i, first + i) for b, first in zip(begun, ids, strict=True) for i in range(params.n)]
        samples: list[Sample] = []
        for start in range(0, len(rows), self._max_num_seqs):
            batch = rows[start : start + self._max_num_seqs]
            with self.turn:
                samples += self._batch(batch, params)
            if progress is not None:
                progress(len(batch))
        return samples

    def abort(self, sample_ids: Collection[int] | None = None) -> None:
        """End rows of the batch that is being sampled, with what they have."""
        if (batch := self._stop_early) is not None:
            batch.abort(sample_ids)

    @torch.no_grad()
    def _batch(self, rows: list[_Row], params: SamplingParams) -> list[Sample]:
        pad, prompts = self._tokenizer.pad_token_id, [row.begun.prefix for row in rows]
        width = max(len(p.ids) for p in prompts)
        ids = torch.tensor([[pad] * (width - len(p.ids)) + p.ids for p in prompts], device=self._model.device)
        mask = torch.tensor([[0] * (width - len(p.ids)) + [1] * len(p.ids) for p in prompts], device=ids.device)
        first = rows[0]
        seed = int(stream_keys(params.seed, torch.tensor([first.sample_id]), first.begun.written))
        shown = self._media(ids, prompts)
        aborted = self._stop_early = _Aborted([row.sample_id for row in rows], width)
        try:
            with _plain(self._model), torch.random.fork_rng():
                torch.manual_seed(seed)
                output = self._generate(ids, mask, shown | self._options(params, width, aborted))
        finally:
            self._stop_early = None
        return self._samples(rows, output, params, aborted)

    def _generate(self, ids: Tensor, mask: Tensor, options: Mapping[str, object]) -> Any:
        try:
            return cast(Any, self._model).generate(ids, attention_mask=mask, **options)
        except RuntimeError as error:
            if "probability tensor" not in str(error):
                raise
            raise DivergedError(
                "the probabilities of the model's next tokens are not finite, so nothing can be sampled from it. The "
                "last checkpoint is as it was; lower the learning rate"
            ) from error

    def _media(self, ids: Tensor, prompts: Sequence[Prompt]) -> dict[str, Tensor]:
        """Return the image and video tensors for `generate`: a copy for every row."""
        for prompt in prompts:
            check_prompt(self._model, prompt)
        vision = vision_of(self._model)
        if vision is None or all(prompt.media is None for prompt in prompts):
            return {}
        inputs = vision.row_media([(0, prompt) for prompt in prompts], ids.device).inputs
        if vision.in_pieces:
            inputs |= {"mm_token_type_ids": vision.kinds(ids)}
            given = (prompt.media.inputs.get(TIMES) for prompt in prompts if prompt.media is not None)
            if seconds := [torch.as_tensor(each) for each in given if each is not None]:
                inputs |= {TIMES: torch.cat(seconds)}
        return inputs

    def _options(self, params: SamplingParams, prompt_width: int, aborted: _Aborted) -> dict[str, object]:
        options: dict[str, object] = {
            "max_new_tokens": params.max_tokens,
            "do_sample": params.temperature > 0,
            "pad_token_id": self._tokenizer.pad_token_id,
            "eos_token_id": None if params.ignore_eos else sorted(self._end_ids),
            "output_logits": True,
            "suppress_tokens": placeholder_ids(self._model.config) or None,
            "return_dict_in_generate": True,
        }
        if params.temperature > 0:
            options |= {
                "temperature": params.temperature,
                "top_p": params.top_p,
                "top_k": max(params.top_k, 0),
                "min_p": params.min_p or None,
            }
        criteria = StoppingCriteriaList([aborted])
        if params.stop:
            criteria.append(_WroteStop(self._tokenizer, params.stop, prompt_width))
        return options | {"stopping_criteria": criteria}

    def _samples(
        self, rows: list[_Row], output: GenerateDecoderOnlyOutput, params: SamplingParams, aborted: _Aborted
    ) -> list[Sample]:
        logits_BTV = torch.stack(list(output.logits or ()), dim=1).float() / (params.temperature or 1.0)
        steps = logits_BTV.shape[1]
        response_BT = output.sequences[:, -steps:]
        log_probs_BT = torch.log_softmax(logits_BTV, -1).gather(2, response_BT.unsqueeze(2)).squeeze(2)
        samples = []
        for at, (row, ids, log_probs) in enumerate(zip(rows, response_BT.tolist(), log_probs_BT.tolist())):
            ids = ids[: aborted.lengths.get(at)]
            length, stopped = self._length(ids, params)
            finish: FinishReason = "stop" if stopped else "abort" if at in aborted.lengths else "length"
            new = ids[:length], log_probs[:length]
            samples.append(row.begun.sample(*new, finish, row.index, [(0, self.version)]))
        return samples

    def _length(self, ids: list[int], params: SamplingParams) -> tuple[int, bool]:
        """Return the response length of a padded row, and whether it ended by itself."""
        for i, token in enumerate(ids):
            if not params.ignore_eos and token in self._end_ids:
                return i + 1, True
            if params.stop:
                text = self._tokenizer.decode(ids[: i + 1], skip_special_tokens=False)
                if any(s in text for s in params.stop):
                    return i + 1, True
        return len(ids), False


@contextmanager
def _plain(model: PreTrainedModel) -> Iterator[None]:
    """The model as transformers runs it: its own attention, and none of the sampling defaults in the model's folder."""
    defaults = model.generation_config
    model.generation_config = GenerationConfig()
    model.set_attn_implementation("sdpa")
    try:
        yield
    finally:
        model.set_attn_implementation(attention.implementation(model.config))
        model.generation_config = defaults


class _WroteStop(StoppingCriteria):
    """Ends a row whose response holds a stop string; transformers' own criterion would look into the prompt too."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop: tuple[str, ...], prompt_width: int) -> None:
        self._tokenizer, self._stop, self._prompt_width = tokenizer, stop, prompt_width

    def __call__(self, input_ids: Tensor, scores: Tensor, **_unused: object) -> Tensor:
        texts = self._tokenizer.batch_decode(input_ids[:, self._prompt_width :], skip_special_tokens=False)
        return torch.tensor([any(s in text for s in self._stop) for text in texts], device=input_ids.device)


class _Aborted(StoppingCriteria):
    """Ends the rows that somebody aborts, and notes how long they were."""

    def __init__(self, sample_ids: list[int], prompt_width: int) -> None:
        self._ids, self._prompt_width = sample_ids, prompt_width
        self._asked: list[Collection[int] | None] = []  # ids, or None for all
        self.lengths: dict[int, int] = {}  # of each row that was aborted

    def abort(self, sample_ids: Collection[int] | None) -> None:
        """End these with the next token; called from any thread."""
        self._asked.append(sample_ids)

    def __call__(self, input_ids: Tensor, scores: Tensor, **_unused: object) -> Tensor:
        for sample_ids in list(self._asked):
            for row, sample_id in enumerate(self._ids):
                if sample_ids is None or sample_id in sample_ids:
                    self.lengths.setdefault(row, input_ids.shape[1] - self._prompt_width)
        return torch.tensor([row in self.lengths for row in range(len(input_ids))], device=input_ids.device)
