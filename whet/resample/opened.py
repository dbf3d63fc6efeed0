"""A run opened for resampling: its config at a step, engine, prompts and reward, from one checkpoint."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from whet.config import Config, load_config, val_rollout, with_values
from whet.data.dataset import PromptDataset
from whet.data.files import Table, read_tables, with_answers
from whet.errors import UserError
from whet.model.fused import make_exact
from whet.model.load import count_parameters
from whet.model.names import folder_weights
from whet.resample.weights import Weights
from whet.rollout.engine import Engine, SamplingParams
from whet.rollout.spec import Opening, check_engine_model, open_engine
from whet.tracking.console import Console
from whet.tracking.run_folder import clean, read_metrics
from whet.training import parts, policy
from whet.training.data import data_files
from whet.training.device import choose_placement, choose_threads, keep_freed_memory
from whet.training.model_folder import ModelFolder, find_model
from whet.training.parts import open_scorer, resolver
from whet.training.rollouts import Rollouts, sampling_params, validation_params
from whet.training.stages import Stages
from whet.types import Prompt, Sample

if TYPE_CHECKING:
    from whet.rewards.protocol import SampleScorer

OWN_NUMBERS = ("native", "hf")  # engines whose random numbers can be had again here
# One device, and no code of a model's folder; the run folder is read, and nothing is written to it.
_CHANGES = {
    "trainer.n_gpus_per_node": 1,
    "trainer.nnodes": 1,
    "trainer.placement.rollout": None,
    "trainer.placement.learn": None,
    "worker.actor.model.trust_remote_code": False,
    "worker.rollout.tensor_parallel_size": 1,
    "trainer.val_only": True,
}


def config_at(folder: Path, step: int) -> Config:
    """Return the config of a run in the stage that trained a step."""
    config = load_config([f"config={folder / 'config.yaml'}"])
    if not config.trainer.stages:
        return config
    rows = read_metrics(folder / "metrics.jsonl")
    stage = next((row.get("train/stage") for row in rows if row["step"] == max(step, 1)), 1)
    configs = Stages(config, lambda _: None, lambda _: None).configs
    return configs[min(int(stage or 1), len(configs)) - 1]


@dataclass(slots=True)
class Opened:
    """Everything that draws samples of a run; closed with the stack that it was opened on."""

    config: Config
    folder: ModelFolder  # tokenizer and processor of the model
    loaded: PreTrainedModel | None  # None where the run's own engine draws
    engine: Engine
    scratch: Path  # for what the reward function prints
    stack: ExitStack
    console: Console
    notes: tuple[str, ...] = ()
    _rollouts: Rollouts | None = None
    _texts: dict[int, str] = field(default_factory=dict)  # of tokens

    @property
    def model(self) -> PreTrainedModel:
        """The weights."""
        assert self.loaded is not None, "asked for only where a checkpoint was loaded"
        return self.loaded

    def params(self, split: str) -> SamplingParams:
        """Return how the run samples, one sample at a time."""
        length = self.config.data.max_response_length
        if split == "val":
            return replace(validation_params(val_rollout(self.config), length), n=1)
        return replace(sampling_params(self.config.worker.rollout, length), n=1)

    def prompts(self, uids: Sequence[str], split: str) -> list[Prompt]:
        """Read prompts of the run's data by name, without the others."""
        key = "train_files" if split == "train" else "val_files"
        files = data_files(self.config, key, self.console)
        tables = {table.name: table for table in read_tables(files, f"data.{key}", resolver(self.config))}
        read: dict[str, Prompt] = {}
        for uid in dict.fromkeys(uids):
            name, _, number = uid.rpartition(":")
            if name not in tables or not number.isdigit() or not 1 <= int(number) <= len(tables[name].rows):
                raise UserError(f"data.{key}: there is no row {uid}; the data has changed since the run")
            table = with_answers(Table(name, [tables[name].rows[int(number) - 1]]), self.config.data.answer_key)
            read[uid] = replace(self._dataset([table])[0], uid=uid)
        return [read[uid] for uid in uids]

    def encode(self, text: str) -> list[int]:
        """Return the ids of a prompt whose template is applied already."""
        row = {self.config.data.prompt_key: "text", self.config.data.answer_key: None}
        (ids,) = self._dataset([Table("prompt", [row])]).encode([text])
        limit = self.config.data.max_prompt_length
        if not 0 < len(ids) <= limit:
            raise UserError(f"resample: the prompt has {len(ids)} tokens; data.max_prompt_length={limit}")
        return ids

    def text(self, ids: Sequence[int]) -> str:
        """Return a response as the reward function reads it."""
        skip = self.config.worker.reward.skip_special_tokens
        return str(self.folder.tokenizer.decode(list(ids), skip_special_tokens=skip))

    def token_text(self, token: int) -> str:
        """Return the text of one token; bytes that are no whole character are shown as such."""
        if token not in self._texts:
            self._texts[token] = clean(str(self.folder.tokenizer.decode([token])))
        return self._texts[token]

    def score(self, samples: list[Sample]) -> str | None:
        """Score samples by the run's own reward; return why they have no scores where there is none."""
        if not self.config.worker.reward.is_named:
            return "the run's rewards come from its environment, which is not played here"
        if self._rollouts is None:
            scorer: SampleScorer = self.stack.enter_context(
                open_scorer(self.config, self.folder.tokenizer, self.console, self.scratch)
            )
            scorer.check([])
            scorer.ready()
            self._rollouts = Rollouts(self.config, self.engine, self.folder.tokenizer, scorer)
        self._rollouts.score(samples)
        return None

    def _dataset(self, tables: list[Table]) -> PromptDataset:
        data = replace(self.config.data, filter_overlong_prompts=False, on_bad_media="stop")
        limit = self.config.worker.rollout.limit_images
        opened = self.folder
        return PromptDataset(tables, data, opened.tokenizer, "data", resolver(self.config), opened.processor, limit)


def open_run(config: Config, weights: Weights, stack: ExitStack) -> Opened:
    """Load the weights and open the engine that the run sampled with, or the native one in place of a server."""
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    console = Console(quiet=True, stream=io.StringIO())
    changes: dict[str, Any] = dict(_CHANGES)
    changes["trainer.load_checkpoint_path"] = str(weights.checkpoint.path) if weights.checkpoint else None
    notes = []
    if config.worker.rollout.name not in OWN_NUMBERS:
        notes.append(
            f"The run sampled with {config.worker.rollout.name}, which has random numbers of its own; the native "
            "engine stands in for it here, so that tokens differ."
        )
        changes["worker.rollout.name"] = "native"
    config = with_values(config, changes)
    folder = find_model(config, console.note)
    if weights.checkpoint is not None:  # its adapters are those that the config has
        own = weights.checkpoint.meta["config"]["worker"]["actor"]["model"]["lora"]
        config = with_values(config, {f"worker.actor.model.lora.{name}": value for name, value in own.items()})
    check_engine_model(config, folder.config)
    parts.check_lengths(config, folder.config, folder.tokenizer)
    placement = choose_placement(config)
    keep_freed_memory(placement)
    choose_threads(placement, count_parameters(folder.path))
    model = policy.load_policy(config, folder.path, weights.checkpoint, placement, console.note)
    model.eval()
    if config.worker.rollout.exact:
        make_exact(model)
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="whet-resample-")))
    engine = open_engine(Opening(config, model, folder.tokenizer, folder.ends, scratch / "rollout.log"))
    stack.callback(engine.close)
    engine.load_weights(lambda: folder_weights(model), weights.version)
    return Opened(config, folder, model, engine, scratch, stack, console, tuple(notes))
