#!/bin/sh
# Makes the tiny model that attune ships (models/tiny): data, tokenizer, SFT from scratch, accuracy per task.
#
#   npm run attune -- doctor && sh recipes/tiny-model/make.sh                 # from the repository
#   ATTUNE=./attune sh app/recipes/tiny-model/make.sh work                    # from the bundle, on a GPU: some minutes
#
# Shorter, to see that every command works: ROWS=2000 STEPS=20 BUDGET=2048 sh recipes/tiny-model/make.sh /tmp/tiny
set -eu
here=$(cd "$(dirname "$0")" && pwd)
ATTUNE=${ATTUNE:-node "$here/../../bin/attune.mjs"}
work=${1:-work/tiny}
TASKS=${TASKS:-"chain_sum:1-2,products:1,leg_counting:1,gcd:1,number_sequence:1,number_sorting:1,letter_counting:1,spell_backward:1,simple_equations:1,weekday_arithmetic:1,propositional_logic:1,time_arithmetic:1"}
ROWS=${ROWS:-40000}
STEPS=${STEPS:-140}
BUDGET=${BUDGET:-16384}

# Test problems are never trained on: a hash of the prompt keeps one in ten of them out of this part.
$ATTUNE tasks generate --kind sft --tasks "$TASKS" --count "$ROWS" --seed 1 --part train --out "$work/sft.jsonl"

# Digits and the letters of quoted words stay single tokens, so that sums and spelling can be learnt; tags and the words of
# the questions become one token each.
$ATTUNE tokenizer train --files "$work/sft.jsonl" --field messages --vocab-size 512 --out "$work/tokenizer" \
  --pattern '</?[a-z]+>| \p{L}+|\p{L}|\p{N}| ?[^\s\p{L}\p{N}<]+|\s+'

# Stopped early on purpose: the last checkpoint (runs/sft/final) is right in about half of the test problems, which leaves
# reinforcement learning something to do, and is the one that is shipped. More rows and steps make a better model.
$ATTUNE train sft --from-config "$here/config.json" --tokenizer "$work/tokenizer" --dataset "$work/sft.jsonl" \
  --token-budget "$BUDGET" --grad-accum 1 --epochs 50 --max-steps "$STEPS" --max-length 512 \
  --lr 1e-3 --lr-schedule cosine --warmup-steps 50 --weight-decay 0.1 --max-grad-norm 1 \
  --eval-steps 100 --save-steps 100 --output-dir "$work/runs" --log-dir "$work/logs" --run-name sft

# Accuracy on test problems, greedily and sampled, for every checkpoint.
for checkpoint in "$work"/runs/sft/step-* "$work"/runs/sft/final; do
  [ -d "$checkpoint" ] || continue
  $ATTUNE evaluate policy --model "$checkpoint" --task "$TASKS" --num-prompts "${PROMPTS:-480}" --samples 4 \
    --max-new-tokens 160 --top-p 1 --output-dir "$work/evaluation/$(basename "$checkpoint")"
done
