"""A judge that runs here: a second model, on whet's own engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.config.keys import with_values
from whet.config.schema.rollout import RolloutConfig
from whet.data.chat import ChatTemplate
from whet.errors import UserError
from whet.model.load import end_ids, load_model, load_model_config, load_tokenizer
from whet.rewards.judges.asking import AskError, Message
from whet.rollout.engine import SamplingParams
from whet.rollout.spec import Opening, open_engine
from whet.types import Prompt

if TYPE_CHECKING:
    from whet.rollout.engine import Engine
    from whet.training.reward_terms import Surroundings

KEY = "worker.reward.judge"


class EngineJudge:
    """Asks a model of this process. Folder and tokenizer are checked at once, weights are read by `load`."""

    def __init__(self, around: Surroundings) -> None:
        settings = self._settings = around.config.worker.reward.judge
        self._around, self._path = around, around.model(settings.model_path or "")
        model = load_model_config(self._path, settings.trust_remote_code, None, KEY)
        self._tokenizer = load_tokenizer(self._path, settings.trust_remote_code, f"{KEY}.model_path")
        self._chat = ChatTemplate(self._tokenizer)
        positions = getattr(model.get_text_config(), "max_position_embeddings", None)
        self._longest = settings.max_prompt_tokens
        if isinstance(positions, int):
            self._longest = min(self._longest, positions - settings.max_tokens)
        if self._longest < 1:
            raise UserError(
                f"{KEY}.max_tokens={settings.max_tokens}: the judge's positions end at {positions}, which leaves no "
                "room for a question; lower it"
            )
        around.device(KEY, settings.device, settings.dtype)  # a device that is not there is an error before any work
        self._engine: Engine | None = None

    def load(self) -> None:
        """Read the weights and open the engine."""
        settings = self._settings
        device, dtype = self._around.device(KEY, settings.device, settings.dtype)
        model = load_model(self._path, dtype, device, settings.trust_remote_code, section=KEY)
        rollout = RolloutConfig(
            name="native",
            max_num_seqs=settings.concurrency,
            gpu_memory_utilization=settings.gpu_memory_utilization,
        )
        lengths = {"data.max_prompt_length": self._longest, "data.max_response_length": settings.max_tokens}
        config = with_values(self._around.config, {"worker.rollout": rollout, **lengths})
        self._engine = open_engine(Opening(config, model, self._tokenizer, end_ids(self._path, self._tokenizer)))

    async def __call__(self, messages: list[Message], key: str) -> str:
        """Return the judge's text."""
        assert self._engine is not None, "weights are loaded before the first question"
        turns = messages if self._chat.speaks_chat else [{"role": "user", "content": "\n\n".join(_texts(messages))}]
        try:
            (text,) = self._chat.write([turns], [f"the question of {KEY}"])
        except UserError as error:
            raise AskError("bad result", "chat template", str(error)) from None
        ids = self._tokenizer(text, add_special_tokens=not self._chat.speaks_chat, verbose=False)["input_ids"]
        if len(ids) > self._longest:
            detail = f"{KEY}: a question has {len(ids)} tokens, and the judge reads {self._longest}"
            raise AskError("bad result", "too long", detail)
        params = SamplingParams(temperature=self._settings.temperature, max_tokens=self._settings.max_tokens)
        # The number of a sample decides its random numbers: the same question is answered alike.
        (sample,) = await self._engine.sample(Prompt(key, list(ids), text), params, int(key[:8], 16))
        return str(self._tokenizer.decode(sample.ids, skip_special_tokens=True))

    def close(self) -> None:
        """Close the engine."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None


def _texts(messages: list[Message]) -> list[str]:
    return [message["content"] for message in messages]
