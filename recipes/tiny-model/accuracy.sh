#!/bin/sh
# Accuracy per task of a model that make.sh made: sh recipes/tiny-model/accuracy.sh work/tiny/model
set -eu
here=$(cd "$(dirname "$0")" && pwd)
attune() { if [ -n "${ATTUNE:-}" ]; then command $ATTUNE "$@"; else npm --prefix "$here/../.." run --silent attune -- "$@"; fi; }
model=$1
TASKS=${TASKS:-"chain_sum:1 chain_sum:2 products:1 leg_counting:1 gcd:1 number_sequence:1 number_sorting:1 letter_counting:1 spell_backward:1 simple_equations:1 weekday_arithmetic:1 propositional_logic:1 time_arithmetic:1"}
for task in $TASKS; do
  echo "$task"
  attune evaluate policy --model "$model" --task "$task" --num-prompts "${PROMPTS:-100}" --samples 4 --top-p 1 \
    --max-new-tokens 64 --output-dir "${2:-evaluation}/$task" | grep -E 'accuracy|pass@|ended'
done
