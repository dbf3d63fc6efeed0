"""The reference engine: plain `generate` of transformers, one padded batch a call.

Slow and simple on purpose: it is what the native engine is compared with. Its random numbers are torch's own, seeded
a call at a time, so a sample depends on its batch here. Log-probs come from the logits that `generate` returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.generation import GenerateDecoderOnlyOutput, StoppingCriteria, StoppingCriteriaList

from whet.errors import DivergedError
from whet.model import attention
from whet.model.vision import TIMES, check_prompt, placeholder_ids, vision_of
from whet.rollout.engine import Progress, SamplingParams, Weights
from whet.rollout.uniforms import stream_keys
from whet.types import FinishReason, Prompt, Sample


class HFEngine:
    """`model.generate` behind the Engine protocol."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        end_ids: frozenset[int],
        max_num_seqs: int = 64,
    ) -> None:
        self.version = 0
        self._model, self._tokenizer, self._end_ids = model, tokenizer, end_ids
        self._max_num_seqs = max_num_seqs

    def generate(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams,
        sample_ids: Sequence[int] | None = None,
        progress: Progress | None = None,
    ) -> list[Sample]:
        """n samples for each prompt, in the order of the prompts."""
        ids = range(0, len(prompts) * params.n, params.n) if sample_ids is None else sample_ids
        rows = [(p, i, first + i) for p, first in zip(prompts, ids) for i in range(params.n)]
        samples: list[Sample] = []
        for start in range(0, len(rows), self._max_num_seqs):
            batch = rows[start : start + self._max_num_seqs]
            samples += self._batch(batch, params)
            if progress is not None:
                progress(len(batch))
        return samples

    async def sample(self, prompt: Prompt, params: SamplingParams, sample_id: int = 0) -> list[Sample]:
        """n samples of one prompt."""
        return self.generate([prompt], params, [sample_id])

    def release(self) -> None:
        """Nothing is held between calls."""

    def load(self, weights: Weights, version: int) -> None:
        """Note the version: the model is the learner's own, so its weights are here already."""
        self.version = version

    def close(self) -> None:
        """Nothing was started."""

    @torch.no_grad()
    def _batch(self, rows: list[tuple[Prompt, int, int]], params: SamplingParams) -> list[Sample]:
        pad = self._tokenizer.pad_token_id
        width = max(len(p.ids) for p, _, _ in rows)
        ids = torch.tensor([[pad] * (width - len(p.ids)) + p.ids for p, _, _ in rows], device=self._model.device)
        mask = torch.tensor([[0] * (width - len(p.ids)) + [1] * len(p.ids) for p, _, _ in rows], device=ids.device)
        seed = int(stream_keys(params.seed, torch.tensor([rows[0][2]])))
        shown = self._media(ids, [prompt for prompt, _, _ in rows])
        with _plain(self._model), torch.random.fork_rng():
            torch.manual_seed(seed)
            output = self._generate(ids, mask, shown | self._options(params, width))
        return self._samples(rows, output, params)

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
        """What `generate` is given of images and videos: a copy for every row."""
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

    def _options(self, params: SamplingParams, prompt_width: int) -> dict[str, object]:
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
        if params.stop:
            wrote_stop = _WroteStop(self._tokenizer, params.stop, prompt_width)
            options["stopping_criteria"] = StoppingCriteriaList([wrote_stop])
        return options

    def _samples(
        self, rows: list[tuple[Prompt, int, int]], output: GenerateDecoderOnlyOutput, params: SamplingParams
    ) -> list[Sample]:
        logits_BTV = torch.stack(list(output.logits or ()), dim=1).float() / (params.temperature or 1.0)
        steps = logits_BTV.shape[1]
        response_BT = output.sequences[:, -steps:]
        log_probs_BT = torch.log_softmax(logits_BTV, -1).gather(2, response_BT.unsqueeze(2)).squeeze(2)
        samples = []
        for (prompt, index, _), ids, log_probs in zip(rows, response_BT.tolist(), log_probs_BT.tolist()):
            length, stopped = self._length(ids, params)
            finish: FinishReason = "stop" if stopped else "length"
            written = Sample.written(
                prompt, ids[:length], log_probs[:length], finish, index=index, version=self.version
            )
            samples.append(written)
        return samples

    def _length(self, ids: list[int], params: SamplingParams) -> tuple[int, bool]:
        """How much of a padded row is the response, and whether it ended by itself."""
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
