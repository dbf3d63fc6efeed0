"""`whet merge`: the model of a checkpoint as a Hugging Face folder."""

from __future__ import annotations

from dataclasses import replace

from whet.cli.command import Command

_HELP = """\
usage: whet merge RUN|CHECKPOINT DIR [BASE]
       whet merge --local_dir DIR [options]

Write the model of a run's best checkpoint, or of a global_step_N, as a Hugging Face folder. Adapters are merged into
BASE, the folder or hub id of the model that they were trained on. --local_dir does the same for
model_world_size_W_rank_R.pt of verl, EasyR1 or Skywork-OR1.

  --target_dir OUT         output folder; by default DIR/huggingface, beside the config that is there
  --hf_model_path MODEL    folder or hub id for what DIR/huggingface lacks: config, tokenizer, generation config
  --hf_upload_path REPO    push the folder to the hub, to a public repository; --private for a private one
  --dtype bfloat16         cast weights; by default they keep their bits
  --keep-lora              write the adapters of a LoRA run alone, in PEFT's format
  --trust-pickles          read files that hold more than tensors, and run what they pickle
  --trust-remote-code      run the Python code that comes with the model; no file can say so

Examples:
  whet merge checkpoints/whet/quickstart my_model
  whet merge checkpoints/whet/quickstart/global_step_50 my_model --dtype bfloat16
  whet merge --local_dir checkpoints/verl/run/global_step_10/actor --target_dir my_model

Guide: docs/merge.md
"""


def _run(arguments: list[str]) -> int:
    from whet.cli.target import is_run, resolve
    from whet.merge.options import parse

    options = parse(arguments)
    if is_run(options.local_dir):
        target = resolve(str(options.local_dir))
        print(target, flush=True)
        assert target.checkpoint is not None  # a run without one is refused
        options = replace(options, local_dir=target.checkpoint)

    from whet.merge.command import merge

    merge(options, print)
    return 0


COMMAND = Command(summary="write a run's or a checkpoint's model as a Hugging Face folder", help=_HELP, run=_run)
