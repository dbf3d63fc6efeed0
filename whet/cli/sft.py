"""`whet sft`: supervised fine-tuning, on one device or under torchrun."""

from __future__ import annotations

from whet.cli.command import Command
from whet.config.examples import examples_folder
from whet.errors import UserError

_HELP = """\
usage: whet sft [config=FILE] [key=value ...]
       whet sft --show [N] [config=FILE] [key=value ...]

Learn from demonstrations: chats, or prompts with their responses; with no arguments, the built-in example. --show
prints the first N rows (3) as the model reads them, with what it learns in brackets, and trains nothing.

  data.train_files, data.val_files        files, folders or hub datasets
  sft.messages_key                        column with whole chats; the assistant's turns are learned
  data.prompt_key, sft.response_key       columns of rows without one
  worker.actor.model.model_path           the model; worker.actor.model.lora.rank trains adapters
  worker.actor.optim.lr                   about 1e-5 for billions of parameters, 1e-4 for adapters
  sft.batch_size, trainer.total_epochs    rows per update, passes over the data

Examples:
  whet sft
  whet sft --show 2
  whet sft config={examples}/sft/quickstart.yaml trainer.max_steps=5 trainer.experiment_name=short_sft
  torchrun --nproc_per_node 2 -m whet sft

Checkpoints hold the model in global_step_N/actor/huggingface. Every key: whet config. Guide: docs/sft.md
"""


def _run(arguments: list[str]) -> int:
    from whet.config.jobs import load_job
    from whet.distributed.devices import take_devices
    from whet.system.launch import launched

    shown, arguments = _shown_rows(arguments)
    launch = launched()
    devices = (lambda config: take_devices(config, launch)) if launch is not None else None
    config = load_job("sft", arguments, examples_folder(), devices)
    if launch is not None and launch.rank > 0:
        from whet.distributed.torchrun import serve_first

        return 0 if shown is not None else serve_first(launch, config.trainer.device)
    if shown is not None:
        from whet.supervised.show import show

        show(config, shown, print)
        return 0

    from whet.supervised.job import sft

    sft(config, launch)
    return 0


def _shown_rows(arguments: list[str]) -> tuple[int | None, list[str]]:
    """Return how many rows `--show [N]` asks for, None without it, and the other arguments."""
    if "--show" not in arguments:
        return None, arguments
    at = arguments.index("--show")
    count = arguments[at + 1 : at + 2]
    if count and count[0].isdecimal():
        if len(count[0]) > 6:
            raise UserError(f"--show {count[0][:20]}...: shows at most 999999 rows")
        return int(count[0]), arguments[:at] + arguments[at + 2 :]
    return 3, arguments[:at] + arguments[at + 1 :]


COMMAND = Command(
    summary="learn from demonstrations: chats, or prompts with their responses",
    help=_HELP,
    run=_run,
    under_torchrun=True,
)
