# bash recipes/iterated-preferences.sh [rounds] [model]
#
# Iterated direct alignment: the policy writes, the verifier ranks, DPO learns from the pairs, and round again from what came
# out. With a reward model in place of the verifier: --dataset prompts.jsonl --reward-model-path … for --task ….
#
#   TASKS=gcd:1 PROMPTS=20 SAMPLES=4 TOKENS=64 OUT=/tmp/iterated bash recipes/iterated-preferences.sh 2     # in a minute or two
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
rounds=${1:-3}
policy=${2:-$here/../models/tiny}
out=${OUT:-outputs/iterated}
attune() { npm --prefix "$here/.." run --silent attune -- "$@"; }

for round in $(seq "$rounds"); do
  attune preferences build --model "$policy" --task "${TASKS:-number_sorting:1,spell_backward:1}" --seed "$round" --prompts "${PROMPTS:-200}" \
    --samples "${SAMPLES:-8}" --max-new-tokens "${TOKENS:-96}" --output "$out/round-$round/pairs.jsonl" --overwrite
  attune train preference --model "$policy" --dataset "$out/round-$round/pairs.jsonl" --loss dpo --beta 0.1 \
    --lr 1e-4 --epochs 1 --eval-steps 10 --output-dir "$out/round-$round" --run-name policy
  policy="$out/round-$round/policy/final"
done
echo "the last policy is $policy"
