#!/bin/sh
# Does GRPO learn at a real size? A model of 107M parameters is made from nothing on problems of middling difficulty, by a
# teacher who works them out and one who blurts (see ../tiny-model/make.sh), and then trained against the verifier alone for
# 300 steps. On one H200 about seven minutes.
#
#   sh recipes/learning-check/run.sh                                    # from the repository
#   ATTUNE=./attune sh app/recipes/learning-check/run.sh work           # from the bundle
#
# To see that every command works, on a CPU:
#   SHARE=60 STEPS=2 PROMPTS=8 VOCAB=512 CONFIG=recipes/tiny-model/config.json sh recipes/learning-check/run.sh /tmp/learning
set -eu
here=$(cd "$(dirname "$0")" && pwd)
attune() { if [ -n "${ATTUNE:-}" ]; then command $ATTUNE "$@"; else npm --prefix "$here/../.." run --silent attune -- "$@"; fi; }
work=${1:-work/learning-check}
SHARE=${SHARE:-1}
STEPS=${STEPS:-300}
PROMPTS=${PROMPTS:-256}
LR=${LR:-1e-5}
CONFIG=${CONFIG:-"$here/config.json"}
TASKS=${TASKS:-"chain_sum:3-4,number_sorting:3-4,letter_counting:3-4,spell_backward:3-4,simple_equations:2-3,gcd:2-3,products:2-3,count_bits:2-3"}

generate() {
  rows=$(($1 / SHARE)) out=$2
  shift 2
  attune tasks generate --overwrite --kind sft --part train --tasks "$TASKS" --count "$rows" --out "$work/$out" "$@"
}
train() {
  steps=$(($1 / SHARE))
  shift
  attune train sft --max-steps "$steps" --token-budget 16384 --grad-accum 1 --epochs 50 --max-length 512 --lr-schedule cosine \
    --weight-decay 0.1 --max-grad-norm 1 --eval-steps 200 --save-steps -1 --output-dir "$work/runs" --log-dir "$work/logs" "$@"
}

generate 100000 careful.jsonl --seed 1
generate 80000 hasty.jsonl --seed 2 --style answer --wrong-share 0.7
head -n $((60000 / SHARE)) "$work/careful.jsonl" | cat - "$work/hasty.jsonl" > "$work/both.jsonl"
attune tokenizer train --files "$work/careful.jsonl" --field messages --vocab-size "${VOCAB:-1024}" --out "$work/tokenizer" \
  --pattern '</?[a-z]+>| \p{L}+|\p{L}|\p{N}| ?[^\s\p{L}\p{N}<]+|\s+'
train 900 --from-config "$CONFIG" --tokenizer "$work/tokenizer" --dataset "$work/careful.jsonl" --lr 1e-3 --warmup-steps 100 --run-name careful
train 300 --model "$work/runs/careful/final" --dataset "$work/both.jsonl" --lr 3e-4 --warmup-steps 20 --run-name start

judge() {
  attune evaluate policy --model "$1" --task "$TASKS" --num-prompts "$PROMPTS" --samples 4 --max-new-tokens 256 --output-dir "$work/$2"
}
judge "$work/runs/start/final" before
attune train policy --model "$work/runs/start/final" --task "$TASKS" --algorithm grpo --batch-size 32 --group-size 8 --grad-accum 1 \
  --lr "$LR" --warmup-steps 10 --lr-schedule constant --max-steps "$STEPS" --max-new-tokens 256 --eval-steps 50 \
  --eval-num-prompts "$PROMPTS" --save-steps -1 --output-dir "$work/policy" --log-dir "$work/logs" --run-name grpo
judge "$work/policy/grpo/final" after
