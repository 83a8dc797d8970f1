#!/bin/sh
# Makes the tiny model that attune ships (models/tiny): data, tokenizer, SFT from scratch, accuracy. Twenty minutes on one
# core.
#
#   npm run attune -- doctor && sh recipes/tiny-model/make.sh                 # from the repository
#   ATTUNE=./attune sh app/recipes/tiny-model/make.sh work                    # from the bundle
#
# A thirtieth of the rows and steps, to see that every command works: SHARE=30 sh recipes/tiny-model/make.sh /tmp/tiny
set -eu
here=$(cd "$(dirname "$0")" && pwd)
attune() { if [ -n "${ATTUNE:-}" ]; then command $ATTUNE "$@"; else npm --prefix "$here/../.." run --silent attune -- "$@"; fi; }
work=${1:-work/tiny}
SHARE=${SHARE:-1}
# products of this size gain next to nothing from a second thread
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" OPENBLAS_NUM_THREADS="${OPENBLAS_NUM_THREADS:-1}"

# The problems; arguments are the weights of chain_sum, letter_counting, spell_backward and simple_equations.
mixture() {
  echo "chain_sum:1-2*$1,products:1,leg_counting:1,gcd:1,number_sorting:1-2*4,letter_counting:1-2*$2,spell_backward:1-2*$3,\
simple_equations:1*$4,propositional_logic:1,weekday_arithmetic:1,time_arithmetic:1,number_sequence:1"
}

# generate ROWS OUT …: test problems are never trained on, a hash of the prompt keeps one in ten of them out of this part.
generate() {
  rows=$(($1 / SHARE)) out=$2
  shift 2
  attune tasks generate --overwrite --kind sft --part train --count "$rows" --out "$work/$out" "$@"
}

# train STEPS …
train() {
  steps=$(($1 / SHARE))
  shift
  attune train sft --max-steps "$steps" --token-budget 4096 --grad-accum 1 --epochs 50 --max-length 512 --lr-schedule cosine \
    --weight-decay 0.1 --max-grad-norm 1 --eval-steps 200 --save-steps -1 --output-dir "$work/runs" --log-dir "$work/logs" "$@"
}

# 1. It learns to read problems and to work them out step by step.
generate 60000 careful.jsonl --seed 1 --tasks "$(mixture 1 3 4 1)"
# Digits and the letters of quoted words stay single tokens, so that sums and spelling can be learnt; tags and the words of
# the questions become one token each.
attune tokenizer train --files "$work/careful.jsonl" --field messages --vocab-size 512 --out "$work/tokenizer" \
  --pattern '</?[a-z]+>| \p{L}+|\p{L}|\p{N}| ?[^\s\p{L}\p{N}<]+|\s+'
train 480 --from-config "$here/config.json" --tokenizer "$work/tokenizer" --dataset "$work/careful.jsonl" \
  --lr 3e-3 --warmup-steps 60 --run-name careful

# 2. A second teacher blurts out answers, wrong in seven cases of ten. The pupil learns to do either, so it is often wrong
# though it knows better: something for a reward to find.
both() {
  cat "$work/careful-$1.jsonl" "$work/hasty-$1.jsonl" > "$work/both-$1.jsonl"
  train "$2" --model "$work/runs/$3/final" --dataset "$work/both-$1.jsonl" --lr 1.5e-3 --warmup-steps 20 --run-name "both-$1"
}
generate 24000 careful-1.jsonl --seed 2 --tasks "$(mixture 1 3 3 2)"
generate 36000 hasty-1.jsonl --seed 3 --tasks "$(mixture 1 3 3 2)" --style answer --wrong-share 0.7
both 1 360 careful
generate 30000 careful-2.jsonl --seed 4 --tasks "$(mixture 2 4 2 1)"
generate 40000 hasty-2.jsonl --seed 5 --tasks "$(mixture 2 4 2 1)" --style answer --wrong-share 0.7
both 2 400 both-1

# 3. In bfloat16, as it is shipped, and how good it is.
if [ -f "$here/../../package-lock.json" ]; then
  npm --prefix "$here/../.." run --silent recipe -- "$here/to-bfloat16.ts" "$work/runs/both-2/final" "$work/model"
else
  attune node "$here/to-bfloat16.js" "$work/runs/both-2/final" "$work/model"
fi
sh "$here/accuracy.sh" "$work/model" "$work/evaluation"
