#!/bin/sh
# Reward models on what people and models really wrote, from a base that is made here first, where no hub can be reached: a
# preference model on Anthropic's HH-RLHF, an outcome model on graded GSM8K solutions, a process model on PRMBench's steps.
#
#   sh recipes/real-data/run.sh data                         # data/hh, data/gsm8k and data/prm as their authors publish them
#
# What English there is in data/text (files of {"text": …} lines, packed or not) is read first: a base that has seen only the
# dialogues knows little more than how long they are. It must hold nothing of the three, and the base reads both sides of the
# dialogues: else a reward model learns which side it has met before, which helps on no others.
#
# On a CPU, with a base of 2.6M parameters that has read a million tokens, half an hour:
#   SMALL=1 sh recipes/real-data/run.sh data work/real
set -eu
here=$(cd "$(dirname "$0")" && pwd)
attune() { if [ -n "${ATTUNE:-}" ]; then command $ATTUNE "$@"; else npm --prefix "$here/../.." run --silent attune -- "$@"; fi; }
data=$1
work=${2:-work/real-data}
if [ -n "${SMALL:-}" ]; then
  config=$here/config-small.json vocabulary=4096 tokens=4096 steps=300 rate=3e-3 batch=16 rewardrate=1e-4
else
  config=$here/config.json vocabulary=16384 tokens=16384 steps=800 rate=1e-3 batch=32 rewardrate=3e-5
fi

# 1. Every tenth dialogue is held out from everything that follows.
mkdir -p "$work"
for part in "$data"/hh/*.jsonl.gz; do gzip -dc "$part"; done > "$work/hh.jsonl"
awk 'NR % 10 == 0' "$work/hh.jsonl" > "$work/hh-held-out.jsonl"
awk 'NR % 10 != 0' "$work/hh.jsonl" > "$work/hh-train.jsonl"
mkdir -p "$work/dialogues"
sed 's/^{"chosen":/{"text":/' "$work/hh-train.jsonl" > "$work/dialogues/chosen.jsonl"
sed 's/"rejected":/"text":/' "$work/hh-train.jsonl" > "$work/dialogues/rejected.jsonl"

# 2. The base: English, where there is some, and then the other dialogues, all as plain text.
pretrain() { # name, dataset, more
  name=$1 dataset=$2
  shift 2
  attune train sft --dataset "$dataset" --shape text --text-column text --no-assistant-only --token-budget "$tokens" --grad-accum 1 \
    --max-length 1024 --lr-schedule cosine --weight-decay 0.1 --eval-steps 200 --run-name "$name" \
    --output-dir "$work/runs" --log-dir "$work/logs" --save-steps -1 "$@"
}
fresh() { pretrain "$@" --from-config "$config" --tokenizer "$work/tokenizer"; }
if [ -d "$data/text" ]; then
  [ -d "$work/tokenizer" ] || attune tokenizer train --files "$data"/text/* --field text --vocab-size "$vocabulary" --out "$work/tokenizer"
  fresh english "$data/text" --lr "$rate" --warmup-steps 100 --epochs 3
  pretrain base "$work/dialogues" --model "$work/runs/english/final" --lr 3e-4 --warmup-steps 20 --epochs 2
else
  [ -d "$work/tokenizer" ] || attune tokenizer train --files "$work"/dialogues/* --field text --vocab-size "$vocabulary" --out "$work/tokenizer"
  fresh base "$work/dialogues" --lr "$rate" --warmup-steps 50 --epochs 20 --max-steps "$steps"
fi

# 3. The reward models, each judged on what it was not trained on: accuracy with its interval, beside the length alone.
reward() { # name, type, epochs, dataset, held-out data
  attune train reward --type "$2" --model "$work/runs/base/final" --dataset "$4" --eval-dataset "$5" --max-length 1024 \
    --epochs "$3" --batch-size "$batch" --grad-accum 1 --lr "$rewardrate" --warmup-ratio 0.05 --eval-steps 100 --run-name "$1" \
    --output-dir "$work/runs" --log-dir "$work/logs" --save-steps -1
  attune evaluate reward --checkpoint "$work/runs/$1/final" --dataset "$5" --output-dir "$work/evaluation/$1"
}
reward hh preference 2 "$work/hh-train.jsonl" "$work/hh-held-out.jsonl"
gzip -dc "$data/gsm8k/example_model_solutions.jsonl.gz" > "$work/gsm8k.jsonl"
awk 'NR % 10 == 0' "$work/gsm8k.jsonl" > "$work/gsm8k-held-out.jsonl"
awk 'NR % 10 != 0' "$work/gsm8k.jsonl" > "$work/gsm8k-train.jsonl"
reward gsm8k outcome 2 "$work/gsm8k-train.jsonl" "$work/gsm8k-held-out.jsonl"
reward prmbench process 3 "$data/prm/prmbench.train.jsonl.gz" "$data/prm/prmbench.test.jsonl.gz"
