#!/usr/bin/env bash
# Run a command on a Ray cluster that lives as long as the command. Start this on every machine, with the same
# arguments but for the rank:
#
#   on_every_machine.sh HEAD_ADDRESS RANK MACHINES COMMAND...
#
# Rank 0 (whose address HEAD_ADDRESS is) starts Ray, waits for the others and runs the command; the others join and stay
# until the head is gone. RAY_PORT chooses another port, RAY_ARGS adds options of `ray start` such as --num-gpus=4.
#
# Whoever reaches Ray's port can run code on the cluster: RAY_AUTH_TOKEN, a secret of yours that is the same on all
# machines (`openssl rand -hex 32` makes one), keeps others out. Ray knows tokens since 2.52.
set -euo pipefail

if [ "$#" -lt 4 ]; then
  echo "usage: $0 HEAD_ADDRESS RANK MACHINES COMMAND..." >&2
  exit 2
fi
head=$1 rank=$2 machines=$3
shift 3
port=${RAY_PORT:-6379}
if [ -z "${RAY_AUTH_TOKEN:-}" ]; then
  echo "$0: set RAY_AUTH_TOKEN to one secret on all machines; \`openssl rand -hex 32\` makes one" >&2
  exit 2
fi
export RAY_AUTH_TOKEN RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
unset RAY_ADDRESS

if [ "$rank" -ne 0 ]; then
  for _ in $(seq 300); do
    (exec 3<>"/dev/tcp/$head/$port") 2>/dev/null && break
    sleep 2
  done
  # shellcheck disable=SC2086 # RAY_ARGS is a list
  ray start --address="$head:$port" --block ${RAY_ARGS:-} || true # its end is the head's, whatever the code
  exit 0
fi

# As a child of ours, not by `ray stop`: that would end other people's Ray on this machine too.
# shellcheck disable=SC2086
ray start --head --node-ip-address="$head" --port="$port" --include-dashboard=false --block ${RAY_ARGS:-} &
ray=$!
trap 'kill "$ray" 2>/dev/null || true; wait "$ray" 2>/dev/null || true' EXIT

export RAY_ADDRESS="$head:$port"
python - "$machines" <<'PYTHON'
import os, socket, sys, time
import ray

host, _, port = os.environ["RAY_ADDRESS"].rpartition(":")
end = time.monotonic() + 600
while time.monotonic() < end:
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
        break
    except OSError:
        time.sleep(0.5)
time.sleep(2)  # the machine's own part of Ray comes up after the head's
ray.init(log_to_driver=False, logging_level="ERROR")
while (there := sum(node["Alive"] for node in ray.nodes())) < int(sys.argv[1]):
    if time.monotonic() > end:
        sys.exit(f"only {there} of {sys.argv[1]} machines joined Ray in ten minutes")
    time.sleep(1)
PYTHON
"$@"
