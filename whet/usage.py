"""What `whet --help` and `whet COMMAND --help` say."""

USAGE = """\
whet sharpens language models with reinforcement learning.

  whet train [FILE.yaml] [key=value ...]       train; without a file and data, model or reward, the quickstart
  whet sft [config=FILE] [key=value ...]       learn from demonstrations: chats, or prompts with their responses
  whet generate [config=FILE] [key=value ...]  samples of every prompt in a file; a killed one goes on
  whet eval [config=FILE] [key=value ...]      score a model, a server or a file of responses, and write a report
  whet serve MODEL [key=value ...]             OpenAI's API on this machine, for a model folder or a checkpoint
  whet config [config=FILE] [key=value ...]    every key with its type, default and meaning
  whet config WORD ...                         keys with these words in their name or help
  whet config --diff [config=FILE] ...         only what differs from the defaults
  whet model NAME DIR                          write a built-in model as a Hugging Face folder (smollm2, quickstart)
  whet merge CHECKPOINT DIR [BASE]             write a checkpoint's model as a Hugging Face folder, adapters merged in
  whet merge --local_dir DIR [...]             the same of shards of verl, EasyR1 and Skywork-OR1
  whet --version

Keys: whet config. Examples: {examples}
"""

# What `whet COMMAND --help` says; commands that are not here show the whole usage.
HELP = {
    "sft": """\
whet sft [config=FILE] [key=value ...]    learn from demonstrations; with no arguments, the built-in example
whet sft --show [N] [config=FILE] ...     print the first N rows (3) as the model reads them, what it learns in brackets

  data.train_files, data.val_files        files, folders or hub datasets
  sft.messages_key                        column with whole chats; the assistant's turns are learned
  data.prompt_key, sft.response_key       columns of rows without one
  worker.actor.model.model_path           the model; worker.actor.model.lora.rank trains adapters
  worker.actor.optim.lr                   about 1e-5 for billions of parameters, 1e-4 for adapters
  sft.batch_size, trainer.total_epochs    rows per update, passes over the data

Checkpoints hold the model in global_step_N/actor/huggingface. Every key: whet config. Example: {examples}/sft
""",
    "generate": """\
whet generate [config=FILE] [key=value ...]: samples of every prompt, to a jsonl or Parquet file

  whet generate worker.actor.model.model_path=MODEL generate.files=prompts.jsonl generate.output=samples.jsonl

  generate.*                        files in, file out
  worker.rollout.*                  the engine, and how to sample: n, temperature, top_p, ...
  data.*                            columns, templates, longest prompt and response
  trainer.load_checkpoint_path      a checkpoint of a run, in place of the model's own weights

The output appears when it is complete. Until then finished prompts are in OUTPUT.part, and the same command goes on
from there. Every key: whet config. Guide: docs/generate.md
""",
    "eval": """\
whet eval [config=FILE] [key=value ...]: score a model on data sets, and write a report

  whet eval worker.actor.model.model_path=MODEL eval.datasets=[gsm8k,aime24]     built-in data sets
  whet eval config=run.yaml worker.actor.model.model_path=MODEL                  data.val_files of a run
  whet eval eval.via=api eval.api.base_url=http://host:8000/v1 eval.datasets=[mathvista]
  whet eval eval.responses=samples.jsonl eval.datasets=[gsm8k]                   responses that are there already
  whet eval --list                                                               the built-in data sets

  eval.*                            data sets, who answers, the report
  worker.rollout.*, data.*          as in validation

The report is report.md, report.json and scores.csv in eval.output; the same command goes on after a kill.
Every key: whet config. Guide: docs/eval.md
""",
    "serve": """\
whet serve MODEL [config=FILE] [key=value ...]: OpenAI's API for a model folder, a checkpoint or a hub id

  whet serve whet/quickstart serve.port=8000

  serve.host, serve.port                  127.0.0.1 and 8000; another address needs serve.allow_remote=true
  serve.token_file                        the bearer token; without it $WHET_SERVE_TOKEN, or one that is printed
  serve.max_concurrent, serve.max_queued  requests at once, and in the queue before others get 429
  worker.rollout.*                        the engine (native or vllm), its memory, and how to sample by default

POST /v1/weights replaces the weights while it serves; /metrics and /openapi.json are there too. Ctrl-C or SIGTERM lets
requests finish. Every key: whet config. Guide: docs/serve.md
""",
    "merge": """\
whet merge CHECKPOINT DIR [BASE]    the model of a global_step_N of whet as a Hugging Face folder; adapters are merged
                                    into BASE, the folder or hub id of the model they were trained on
whet merge --local_dir DIR          the same of model_world_size_W_rank_R.pt of verl, EasyR1 or Skywork-OR1

  --target_dir OUT         where to; by default DIR/huggingface, beside the config that is there
  --hf_model_path MODEL    folder or hub id for what DIR/huggingface lacks: config, tokenizer, generation config
  --hf_upload_path REPO    push the folder to the hub, to a public repository; --private for a private one
  --dtype bfloat16         cast weights; by default they keep their bits
  --keep-lora              write the adapters of a LoRA run alone, in PEFT's format
  --trust-pickles          read files that hold more than tensors, and run what they pickle
  --trust-remote-code      run the Python code that comes with the model; no file can say so

Guide: docs/merge.md
""",
}
