#!/usr/bin/env bash
# One machine, one process per GPU (or per pair of cores): everything is on 127.0.0.1, and a free port is found.
# A rank that fails ends all; the launch then goes on from the last checkpoint, up to three times.
set -euo pipefail
gpus=$(nvidia-smi --list-gpus 2>/dev/null | wc -l || true)
ranks=${RANKS:-$((gpus > 0 ? gpus : 2))}
exec npx attune launch --nproc "$ranks" --max-restarts 3 -- \
  train policy --model Qwen/Qwen3-0.6B --task chain_sum:1-3 --algorithm grpo --batch-size 8 --grad-accum 4 --save-steps 50 "$@"
