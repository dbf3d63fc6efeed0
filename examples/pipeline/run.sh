#!/bin/sh
# From a base model to a server, with the quickstart's model: fine-tune, train with rewards, merge, evaluate, serve.
#
#     sh examples/pipeline/run.sh [FOLDER]
#
# About a minute. Everything goes to FOLDER (pipeline/ by default), which must be new. At the end agree.py shows
# what each job says of the same model, and fails where two of them differ.
set -eu
examples=$(cd "$(dirname "$0")/.." && pwd)
mkdir "${1:-pipeline}"
out=$(cd "${1:-pipeline}" && pwd)
quickstart=config=$examples/quickstart.yaml
run="trainer.logger=[console,file]"

echo "== 1. fine-tune"
whet sft config="$examples/sft/quickstart.yaml" "$run" trainer.max_steps=6 trainer.save_checkpoint_path="$out/sft"
tuned=$out/sft/global_step_6/actor/huggingface
whet eval "$quickstart" worker.actor.model.model_path="$tuned" eval.output="$out/eval_tuned"

echo "== 2. train with rewards"
whet train "$quickstart" "$run" worker.actor.model.model_path="$tuned" trainer.max_steps=5 \
  trainer.save_checkpoint_path="$out/rl"

echo "== 3. merge"
whet merge "$out/rl/global_step_5" "$out/model"

echo "== 4. evaluate: sampled as in validation, then greedily"
model=worker.actor.model.model_path=$out/model
greedy="worker.rollout.val_override_config={n: 1, temperature: 0.0}"
whet eval "$quickstart" "$model" eval.output="$out/eval_model"
whet eval "$quickstart" "$model" "$greedy" eval.n=1 eval.output="$out/eval_greedy"

echo "== 5. serve, and evaluate the server"
port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
whet serve "$out/model" serve.port="$port" serve.token_file="$out/token" > "$out/serve.log" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT INT TERM
tries=0
until grep -q '^serving' "$out/serve.log"; do
  kill -0 $server 2>/dev/null && [ $tries -lt 300 ] || { cat "$out/serve.log"; exit 1; }
  tries=$((tries + 1))
  sleep 0.5
done
WHET_API_KEY=$(cat "$out/token") whet eval "$quickstart" "$greedy" eval.n=1 eval.via=api \
  eval.api.base_url="http://127.0.0.1:$port/v1" eval.output="$out/eval_served"
kill $server
wait $server || true

python3 "$examples/pipeline/agree.py" "$out"
