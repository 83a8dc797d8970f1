#!/bin/sh
# Three reward models from one base, each judged on problems that training never saw: pairs (preference), graded solutions
# (ORM), labelled steps (PRM). Some minutes each on two cores.
#
#   sh recipes/reward-models.sh                          # models/tiny; runs and evaluations in work/rewards
#   sh recipes/reward-models.sh path/to/model elsewhere
set -eu
here=$(cd "$(dirname "$0")" && pwd)
ATTUNE=${ATTUNE:-node "$here/../bin/attune.mjs"}
model=${1:-"$here/../models/tiny"}
work=${2:-work/rewards}
# Tasks with thousands of distinct problems: fewer would be learnt by heart.
TASKS=${TASKS:-"number_sorting:1,spell_backward:1"}
# A pair contrasts two solutions; a single grade says less, so that graded data have to be more.
PAIRS=${PAIRS:-4000}
ROWS=${ROWS:-8000}

reward() { # type, kind of data, rows, options of the evaluation
  type=$1 kind=$2 rows=$3
  shift 3
  $ATTUNE tasks generate --kind "$kind" --tasks "$TASKS" --count "$rows" --part train --out "$work/$kind.jsonl"
  $ATTUNE train reward --type "$type" --model "$model" --dataset "$work/$kind.jsonl" --no-strip-thinking --batch-size 16 \
    --grad-accum 1 --lr 1e-3 --warmup-ratio 0.05 --output-dir "$work/runs" --log-dir "$work/logs" --run-name "$type"
  $ATTUNE evaluate reward --checkpoint "$work/runs/$type/final" --task "$TASKS" --output-dir "$work/evaluation/$type" "$@"
}

reward preference preference "$PAIRS"
reward outcome graded "$ROWS"
# A step that only copies the word is neutral, neither right nor wrong, so that the least P(+1) of a solution would tell nothing.
reward process steps "$ROWS" --steps last
