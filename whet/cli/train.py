"""`whet train`: reinforcement learning."""

from __future__ import annotations

from whet.cli.command import Command
from whet.config.examples import examples_folder

_HELP = """\
usage: whet train [FILE.yaml] [key=value ...]

Train a model with reinforcement learning. Without a file, and with neither data, model nor reward named, it is the
built-in quickstart. The same command resumes a run that was stopped.

  data.train_files, data.val_files       files, folders or hub datasets; data.prompt_key, data.answer_key: columns
  worker.actor.model.model_path          folder, hub id or built-in name of the model; ...lora.rank trains adapters
  worker.reward.reward_function          path.py:function that scores samples
  algorithm.adv_estimator                the algorithm: grpo, rloo, gae (PPO), ...; worker.actor.loss_type: its loss
  data.rollout_batch_size                prompts per step; worker.rollout.n: samples of each
  worker.actor.optim.lr                  learning rate
  trainer.max_steps, .total_epochs       how long; trainer.val_freq and .save_freq: when to validate and save
  trainer.experiment_name                the run folder: checkpoints/project_name/experiment_name

Examples:
  whet train
  whet train trainer.max_steps=20 trainer.experiment_name=short
  whet train config={examples}/algorithms/rloo.yaml worker.actor.optim.lr=1e-4
  whet train config={examples}/extending/mine.yaml

Every key: whet config. Guides: README.md, docs/algorithms.md, docs/rewards.md, docs/scaling.md
"""


def _run(arguments: list[str]) -> int:
    from whet.config.jobs import load_job

    config = load_job("train", arguments, examples_folder())

    from whet.training.job import train

    train(config)
    return 0


COMMAND = Command(summary="train a model with reinforcement learning", help=_HELP, run=_run)
