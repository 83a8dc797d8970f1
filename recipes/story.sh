#!/bin/sh
# The demo's story with a real model: a reward model, GRPO against it and against the verifier, both judged by the verifier.
#
#   sh recipes/story.sh                                       # Qwen3-0.6B with LoRA on one GPU: about an hour
#   MODEL=models/tiny TASKS=gcd:1 STEPS=5 ROWS=200 PROMPTS=16 TOKENS=64 LORA= sh recipes/story.sh /tmp/story   # in minutes
set -eu
here=$(cd "$(dirname "$0")" && pwd)
attune() { if [ -n "${ATTUNE:-}" ]; then command $ATTUNE "$@"; else npm --prefix "$here/.." run --silent attune -- "$@"; fi; }
out=${1:-./story}
MODEL=${MODEL:-Qwen/Qwen3-0.6B}
TASKS=${TASKS:-"chain_sum:3-4,gcd:2-3,number_sorting:3"}
STEPS=${STEPS:-200}
ROWS=${ROWS:-20000}
LORA=${LORA---lora}
TOKENS=${TOKENS:-512}
PROMPTS=${PROMPTS:-128}

# Pairs of a right and a wrong solution, from problems that are never tested on.
attune tasks generate --overwrite --kind preference --tasks "$TASKS" --count "$ROWS" --seed 1 --part train --out "$out/pairs.jsonl"

# A reward model learns which of the two is preferred.
attune train reward --model "$MODEL" --dataset "$out/pairs.jsonl" $LORA --max-steps "$STEPS" --batch-size 16 --lr 1e-4 \
  --output-dir "$out/reward-model" --log-dir "$out/logs" --run-name run

# GRPO against the reward model; train/accuracy and eval/accuracy beside it are the verifier's.
attune train policy --model "$MODEL" --task "$TASKS" --reward-model-path "$out/reward-model/run/final" $LORA \
  --algorithm grpo --lr 2e-5 --max-steps "$STEPS" --max-new-tokens "$TOKENS" --eval-steps 25 --eval-num-prompts "$PROMPTS" \
  --output-dir "$out/policy" --log-dir "$out/logs" --run-name reward-model

# GRPO against the verifier.
attune train policy --model "$MODEL" --task "$TASKS" $LORA --format-reward \
  --algorithm grpo --lr 2e-5 --max-steps "$STEPS" --max-new-tokens "$TOKENS" --eval-steps 25 --eval-num-prompts "$PROMPTS" \
  --output-dir "$out/policy" --log-dir "$out/logs" --run-name verifier

# The two against each other and against the start, on the same held-out problems.
attune evaluate policy --model "$out/policy/verifier/final" --opponent "$out/policy/reward-model/final" --reference "$MODEL" \
  --task "$TASKS" --num-prompts "$PROMPTS" --max-new-tokens "$TOKENS" --output-dir "$out/evaluation"
