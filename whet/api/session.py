"""A loop of your own in four verbs: `sample`, `score`, `update`, `save`.

A session holds what a run of `whet.train` holds (engine, learner, reference, reward workers, run folder), but draws no
prompts and takes no step by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from whet.api.data import prompt_tables
from whet.api.names import documented
from whet.api.prepare import Arguments, Call, prepare, require, surroundings
from whet.api.run import Run
from whet.api.session_check import check_session
from whet.api.settings import ConfigLike
from whet.errors import UserError
from whet.system.launch import refuse_command

if TYPE_CHECKING:
    from whet.training.trainer import Trainer
    from whet.types import Prompt, Sample


@documented("session")
class Session:
    """A model that samples and learns, one call at a time.

        with whet.Session(model, reward=score, lr=1e-6, n=8) as session:
            samples = session.sample(prompts)
            session.score(samples)
            metrics = session.update(samples)
            session.save()

    `reward` may be left out: then set `sample.scores = {"overall": 1.0}` of each sample yourself. `steps` is the length
    of the learning-rate schedule. With the `output` of an earlier session it resumes from the last checkpoint there.
    """

    def __init__(
        self,
        model: str | Path | Run | None = None,
        reward: Callable[..., Any] | str | None = None,
        *,
        config: ConfigLike = None,
        overrides: Mapping[str, Any] | None = None,
        **keys: Any,
    ) -> None:
        refuse_command("train")
        require("Session", config, model=model)
        call = prepare("session", Arguments(model, None, reward, config, overrides, keys))
        check_session(call.config)
        self.folder = call.folder
        self._closed = False
        with call.inputs.written():
            self._trainer = self._open(call)

    def _open(self, call: Call) -> Trainer:
        from whet.api.session_parts import open_session
        from whet.config import check_files

        check_files(call.config)
        with ExitStack() as stack:  # closes what is open already if something fails
            stack.enter_context(surroundings())
            trainer = open_session(call.config, stack)
            trainer.restore()
            self._stack = stack.pop_all()
        return trainer

    @property
    def step(self) -> int:
        """The number of updates so far, those of a resumed session included."""
        return self._trainer.state.step

    @property
    def run(self) -> Run:
        """The session as a run: its metrics, samples and checkpoints."""
        return Run(self.folder)

    def sample(self, prompts: Any, n: int | None = None, temperature: float | None = None) -> list[Sample]:
        """Return n responses to each prompt, those of one prompt after another.

        Prompts are texts or rows (dicts with the columns of the data, the answer among them), or prompts that an
        earlier call has returned as `sample.prompt`. `n` and `temperature` are the session's where they are not given;
        train only on samples of the session's own temperature. The samples of one prompt form the group that
        advantages compare.
        """
        from whet.api.session_parts import sampling

        trainer = self._opened()
        state = trainer.state
        params = sampling(trainer.config, n, temperature)
        read = self._prompts(prompts)
        ids = range(state.samples_drawn, state.samples_drawn + len(read) * params.n, params.n)
        samples = trainer.rollouts.generate(read, params, ids, lambda _: None)
        state.samples_drawn += len(samples)
        return samples

    def score(self, samples: Sequence[Sample]) -> dict[str, float]:
        """Fill `scores` of every sample by the reward function, in its worker processes; return how many failed."""
        rollouts = self._opened().rollouts
        if rollouts.scorer is None and rollouts.environments is None:
            raise UserError("the session has no reward function: give reward=..., or set sample.scores of each sample")
        return rollouts.score(_given_samples(samples))

    def update(self, samples: Sequence[Sample], mini_batch: int | None = None) -> dict[str, float]:
        """Train on scored samples and return metrics, which are logged as those of the next step.

        All samples make one optimizer step; `mini_batch` samples make one each where it is given.
        """
        from whet.api.session_parts import check_samples, for_update
        from whet.training.measure import StepClock, sampled_metrics

        trainer, given = self._opened(), _given_samples(samples)
        check_samples(given, trainer.config)
        own, trainer.config = trainer.config, for_update(trainer.config, len(given), mini_batch)
        trainer.state.step += 1
        try:
            clock = StepClock(trainer.console)
            metrics = sampled_metrics(given) | trainer.learn(given, clock)
            metrics |= clock.metrics(given, []) | trainer.position()
            trainer.store.tracker.samples(trainer.state.step, "train", given)
            trainer.report(metrics)
        except BaseException:
            trainer.state.step -= 1
            raise
        finally:
            trainer.config = own
        return metrics

    def save(self, path: str | Path | None = None) -> Path:
        """Write a checkpoint of this step to the session's folder and return its path.

        With `path`, write the model alone to that folder, in Hugging Face's format (adapters in PEFT's).
        """
        trainer = self._opened()
        if path is None:
            trainer.save()
            return self.folder / f"global_step_{self.step}"
        from whet.api.session_parts import export

        return export(trainer.models.learner, trainer.model, Path(path).expanduser())

    def close(self) -> None:
        """End the worker processes and let go of the folder. A closed session cannot be used any more."""
        self._closed = True
        self._stack.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _opened(self) -> Trainer:
        if self._closed:
            raise UserError("the session is closed; open another one, with output= of this one to resume it")
        return self._trainer

    def _prompts(self, prompts: Any) -> list[Prompt]:
        from whet.data.dataset import PromptDataset
        from whet.training.parts import resolver
        from whet.types import Prompt

        if isinstance(prompts, Prompt):
            return [prompts]
        if isinstance(prompts, list | tuple) and prompts and all(isinstance(each, Prompt) for each in prompts):
            return list(prompts)
        config, model = self._opened().config, self._opened().model
        data = replace(config.data, filter_overlong_prompts=False, on_bad_media="stop")
        tables = prompt_tables(prompts, data.prompt_key, data.answer_key, resolver(config))
        return list(PromptDataset(tables, data, model.tokenizer, "prompts", resolver(config), model.processor))


def _given_samples(samples: Any) -> list[Sample]:
    from whet.types import Sample

    if isinstance(samples, str | bytes | Mapping) or not isinstance(samples, Sequence):
        raise UserError(
            f"samples: expected the list that sample returned, or a part of it, got {type(samples).__name__}"
        )
    for each in samples:
        if not isinstance(each, Sample):
            raise UserError(
                f"samples holds a {type(each).__name__}; give the list that sample returned, or a part of it"
            )
    if not samples:
        raise UserError("samples is empty")
    return list(samples)
