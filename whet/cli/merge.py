"""`whet merge`: the model of a checkpoint as a Hugging Face folder."""

from __future__ import annotations

from whet.cli.command import Command

_HELP = """\
usage: whet merge CHECKPOINT DIR [BASE]    the model of a global_step_N of whet as a Hugging Face folder; adapters are
                                           merged into BASE, folder or hub id of the model they were trained on
       whet merge --local_dir DIR          the same of model_world_size_W_rank_R.pt of verl, EasyR1 or Skywork-OR1

  --target_dir OUT         output folder; by default DIR/huggingface, beside the config that is there
  --hf_model_path MODEL    folder or hub id for what DIR/huggingface lacks: config, tokenizer, generation config
  --hf_upload_path REPO    push the folder to the hub, to a public repository; --private for a private one
  --dtype bfloat16         cast weights; by default they keep their bits
  --keep-lora              write the adapters of a LoRA run alone, in PEFT's format
  --trust-pickles          read files that hold more than tensors, and run what they pickle
  --trust-remote-code      run the Python code that comes with the model; no file can say so

Examples:
  whet merge checkpoints/whet/quickstart/global_step_50 my_model
  whet merge checkpoints/whet/quickstart/global_step_50 my_model --dtype bfloat16
  whet merge --local_dir checkpoints/verl/run/global_step_10/actor --target_dir my_model

Guide: docs/merge.md
"""


def _run(arguments: list[str]) -> int:
    from whet.merge.options import parse

    options = parse(arguments)

    from whet.merge.command import merge

    merge(options, print)
    return 0


COMMAND = Command(summary="write a checkpoint's model as a Hugging Face folder, adapters merged", help=_HELP, run=_run)
