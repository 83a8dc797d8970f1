#!/bin/sh
# Three reward models from one base, each judged on problems that training never saw: pairs (preference), graded solutions
# (ORM), labelled steps (PRM). Some minutes each on two cores.
#
#   sh recipes/reward-models.sh                          # models/tiny; runs and evaluations in work/rewards
#   sh recipes/reward-models.sh path/to/model elsewhere
set -eu
here=$(cd "$(dirname "$0")" && pwd)
attune() { if [ -n "${ATTUNE:-}" ]; then command $ATTUNE "$@"; else npm --prefix "$here/.." run --silent attune -- "$@"; fi; }
model=${1:-"$here/../models/tiny"}
work=${2:-work/rewards}
# Over a thousand distinct problems of each to learn from, and others to be asked about.
TASKS=${TASKS:-"number_sorting:1,spell_backward:1"}
ROWS=${ROWS:-8000}

reward() { # type, kind of data, options of the evaluation
  type=$1 kind=$2
  shift 2
  attune tasks generate --overwrite --kind "$kind" --tasks "$TASKS" --count "$ROWS" --part train --out "$work/$kind.jsonl"
  attune train reward --type "$type" --model "$model" --dataset "$work/$kind.jsonl" --no-strip-thinking --batch-size 16 \
    --grad-accum 1 --lr 1e-3 --warmup-ratio 0.05 --output-dir "$work/runs" --log-dir "$work/logs" --run-name "$type"
  attune evaluate reward --checkpoint "$work/runs/$type/final" --task "$TASKS" --output-dir "$work/evaluation/$type" "$@"
}

reward preference preference
reward outcome graded
# A step that only copies the word is neutral, neither right nor wrong, so that the least P(+1) of a solution would tell nothing.
reward process steps --steps last
