#!/bin/sh
# A teacher by reinforcement learning, and three students of it: one that is taught on its own responses (whole distributions, and the
# sampled tokens alone), and one on text. Some three minutes on two cores.
#
#   sh recipes/distillation.sh                          # models/tiny; runs in work/distillation
#   sh recipes/distillation.sh path/to/model elsewhere
set -eu
here=$(cd "$(dirname "$0")" && pwd)
attune() { if [ -n "${ATTUNE:-}" ]; then command $ATTUNE "$@"; else npm --prefix "$here/.." run --silent attune -- "$@"; fi; }
model=${1:-"$here/../models/tiny"}
work=${2:-work/distillation}
TASKS=${TASKS:-"number_sorting:1,spell_backward:1"}
STEPS=${STEPS:-32}

policy() { # name, responses per prompt, further options
  name=$1 group=$2
  shift 2
  attune train policy --model "$model" --task "$TASKS" --batch-size 16 --grad-accum 1 --group-size "$group" --lr 2e-4 --max-steps "$STEPS" \
    --max-new-tokens 64 --eval-steps 8 --eval-num-prompts 64 --output-dir "$work/runs" --log-dir "$work/logs" --run-name "$name" "$@"
}

policy teacher 8 --algorithm grpo --kl-coef 0
policy by-loss 4 --algorithm opd --teacher "$work/runs/teacher"
policy by-advantage 4 --algorithm opd --teacher "$work/runs/teacher" --distill-as advantage --save-tokens
attune tasks generate --overwrite --kind sft --tasks "$TASKS" --count 600 --part train --out "$work/chats.jsonl"
attune train sft --model "$model" --teacher "$work/runs/teacher" --dataset "$work/chats.jsonl" --epochs 2 --batch-size 16 --grad-accum 1 \
  --lr 2e-4 --eval-steps 20 --output-dir "$work/runs" --log-dir "$work/logs" --run-name on-text
