"""TRL's DPOTrainer on the shapes of shapes.ts, on the CPU. One JSON line per case.

    python3 trl_peer.py --shape '{...}' --lengths 87,101,... [--cases dpo,dpo_lora] [--threads 2] [--steps 6]

16 pairs a step, prompts of 8 tokens, the given lengths for prompt and response together; the first two steps do not count.
"""
import argparse, json, random, tempfile, time
import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast, TrainerCallback
from trl import DPOConfig, DPOTrainer

ap = argparse.ArgumentParser()
ap.add_argument("--cases", default="dpo,dpo_lora"); ap.add_argument("--threads", type=int, default=2)
ap.add_argument("--steps", type=int, default=6); ap.add_argument("--shape", required=True); ap.add_argument("--lengths", required=True)
a = ap.parse_args()
torch.set_num_threads(a.threads)
shape = json.loads(a.shape); shape.pop("model_type"); shape.pop("dtype")
lengths = [int(n) for n in a.lengths.split(",")]; PAIRS, PROMPT = 16, 8


def causal():
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(LlamaConfig(**shape), attn_implementation="sdpa").float()


def word_tokenizer():
    """One token a word, so that a text of n words has n tokens."""
    size = shape["vocab_size"] - 10
    vocab = {f"w{i}": i for i in range(size)}
    vocab.update({word: size + i for i, word in enumerate(["<unk>", "<s>", "</s>", "<pad>"])})
    inner = Tokenizer(models.WordLevel(vocab, unk_token="<unk>")); inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<pad>")


def rows():
    draw = random.Random(1)
    words = lambda n: " ".join(f"w{draw.randrange(shape['vocab_size'] - 1000)}" for _ in range(n))
    for _ in range(a.steps):
        for i in range(PAIRS):
            yield dict(prompt=words(PROMPT), chosen=" " + words(lengths[i] - PROMPT), rejected=" " + words(lengths[PAIRS + i] - PROMPT))


class Clock(TrainerCallback):
    def __init__(self): self.marks = []
    def on_step_end(self, *args, **kwargs): self.marks.append(time.perf_counter())


def dpo(lora):
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        config = DPOConfig(output_dir=folder, per_device_train_batch_size=PAIRS, max_steps=a.steps, learning_rate=1e-6, beta=0.1, bf16=False,
                           fp16=False, gradient_checkpointing=False, report_to=[], logging_steps=1000, save_strategy="no", max_length=1024,
                           use_cpu=True, disable_tqdm=True)
        adapters = LoraConfig(r=16, lora_alpha=32, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], task_type="CAUSAL_LM")
        DPOTrainer(model=causal(), args=config, train_dataset=Dataset.from_list(list(rows())), processing_class=word_tokenizer(),
                   callbacks=[clock], **(dict(peft_config=adapters) if lora else dict(ref_model=causal()))).train()
    best = min(later - earlier for earlier, later in zip(clock.marks[1:], clock.marks[2:]))
    return dict(tokens_per_s=round(sum(lengths[:2 * PAIRS]) / best), step_ms=round(best * 1e3, 1))


for case in a.cases.split(","):
    try:
        print(json.dumps(dict(case=case, **dpo(case == "dpo_lora"))), flush=True)
    except Exception as error:
        print(json.dumps(dict(case=case, error=str(error)[:300])), flush=True)
