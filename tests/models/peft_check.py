"""LoRA against the real PEFT, and whole models against transformers. For development only (tests read files, never Python):

    python tests/models/peft_check.py make     # tests/models/adapters: PEFT-made adapters with what PEFT computes with them
    python tests/models/peft_check.py check    # PEFT and transformers load what attune saves, and give attune's numbers
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoModelForTokenClassification

HERE = Path(__file__).parent
FIXTURES, ADAPTERS = HERE / "fixtures", HERE / "adapters"
VOCAB, LENGTH = 67, 11

# name: (base, task, LoraConfig's fields)
CASES = {
    "llama": ("llama", "CAUSAL_LM", dict(target_modules=["q_proj", "k_proj", "v_proj", "o_proj"])),
    "llama-some-parts": ("llama-head-dim", "CAUSAL_LM", dict(target_modules=["q_proj", "v_proj", "up_proj"], bias="lora_only")),
    "llama-all-linear-rslora": ("llama", "CAUSAL_LM", dict(target_modules="all-linear", use_rslora=True, rank_pattern={"q_proj": 2}, alpha_pattern={"mlp.up_proj": 3})),
    "llama-regex": ("llama", "CAUSAL_LM", dict(target_modules=r".*\.(q|v)_proj", layers_to_transform=None, exclude_modules=["layers.1.self_attn.q_proj"])),
    "llama-reward": ("llama", "SEQ_CLS", dict(target_modules=["q_proj", "v_proj"])),
    "llama-saved-modules": ("llama", "CAUSAL_LM", dict(target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"])),
    "qwen3-dora": ("qwen3", "CAUSAL_LM", dict(target_modules=["q_proj", "v_proj", "down_proj"], use_dora=True)),
    "qwen3-bias-dora-all": ("qwen3-bias", "CAUSAL_LM", dict(target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], use_dora=True, bias="all")),
    "gpt2": ("gpt2", "CAUSAL_LM", dict(target_modules=["c_attn"], bias="all", fan_in_fan_out=True)),
    "gpt2-dora": ("gpt2", "CAUSAL_LM", dict(target_modules=["c_attn", "c_proj"], use_dora=True, bias="lora_only", fan_in_fan_out=True)),
    "gpt2-reward": ("gpt2", "SEQ_CLS", dict(target_modules=["c_attn"], use_rslora=True, fan_in_fan_out=True)),
    "gpt_neox": ("gpt_neox", "CAUSAL_LM", dict(target_modules=["query_key_value"], use_dora=True)),
    "bloom": ("bloom", "CAUSAL_LM", dict(target_modules=["query_key_value"], bias="lora_only")),
    "falcon": ("falcon-new-decoder", "CAUSAL_LM", dict(target_modules=["query_key_value", "dense"], layers_to_transform=[1])),
    "gptj": ("gptj", "CAUSAL_LM", dict(target_modules=["q_proj", "v_proj"], bias="all")),
    "mistral-classes": ("mistral", "TOKEN_CLS", dict(target_modules=["q_proj", "gate_proj"])),
}
CLASSES = {"CAUSAL_LM": AutoModelForCausalLM, "SEQ_CLS": AutoModelForSequenceClassification, "TOKEN_CLS": AutoModelForTokenClassification}


def load_base(folder, task, labels=None):
    fields = {} if task == "CAUSAL_LM" else dict(num_labels=labels or {"SEQ_CLS": 1, "TOKEN_CLS": 3}[task], pad_token_id=0)
    return CLASSES[task].from_pretrained(folder, dtype=torch.float32, **fields).eval()


def loss_of(task, output, ids):
    if task == "CAUSAL_LM":
        return torch.nn.functional.cross_entropy(output.logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    return output.logits.tanh().sum()


def make(name, seed):
    base, task, fields = CASES[name]
    torch.manual_seed(seed)
    model = get_peft_model(load_base(FIXTURES / base, task), LoraConfig(r=3, lora_alpha=5, task_type=task, **fields)).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            if "lora_" in key and "magnitude" not in key:
                parameter.normal_(0, 0.3)
            else:
                parameter.mul_(1 + 0.2 * torch.randn_like(parameter)).add_(0.05 * torch.randn_like(parameter))
    folder = ADAPTERS / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text())
    config["base_model_name_or_path"] = f"../../fixtures/{base}"
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()
    path.write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")

    ids = torch.randint(3, VOCAB, (2, LENGTH))
    output = model(input_ids=ids)
    loss = loss_of(task, output, ids)
    loss.backward()
    norms = {}
    for key, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.grad is not None:
            plain = key.removeprefix("base_model.model.").replace(".modules_to_save.default", "").replace(".default", "")
            norms[plain.replace("lora_magnitude_vector.weight", "lora_magnitude_vector")] = parameter.grad.norm().item()
    save_file(dict(input_ids=ids, logits=output.logits.detach().contiguous()), folder / "reference.safetensors")
    (folder / "reference.json").write_text(json.dumps(dict(loss=loss.item(), grad_norms=norms), indent=1) + "\n")
    print(f"{name:26} loss {loss.item():.4f}, {len(norms)} gradients")


def check():
    root = Path(tempfile.mkdtemp())
    subprocess.run(["node", str(HERE / "peft-export.ts"), str(root)], check=True)
    worst = 0.0
    for folder in sorted(root.iterdir()):
        info = json.loads((folder / "case.json").read_text())
        ours = load_file(folder / "ours.safetensors")
        task, labels = info["task"], info.get("labels")
        if info["kind"] == "adapter":
            model = PeftModel.from_pretrained(load_base(info["base"], task, labels), folder / "saved").eval()
        else:
            model, report = CLASSES[task].from_pretrained(folder / "saved", dtype=torch.float32, output_loading_info=True)
            model.eval()
            lost = set(report["missing_keys"]) - {"score.bias", "classifier.bias"}
            # a reward model keeps its language-model head, which transformers' classifiers leave out
            more = set(report["unexpected_keys"]) - ({"embed_out.weight", "lm_head.weight", "lm_head.bias"} if task != "CAUSAL_LM" else set())
            assert not lost and not more, (folder.name, report)
        with torch.no_grad():
            theirs = model(input_ids=ours["input_ids"]).logits
        difference = (theirs.flatten() - ours["logits"].flatten()).abs().max().item()
        worst = max(worst, difference)
        print(f"{folder.name:34} {task:10} {info['kind']:8} {difference:.2e}", "" if difference < 1e-5 else "  <-- too far")
    print(f"largest difference {worst:.2e}")
    shutil.rmtree(root)
    return worst < 1e-5


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["make"]:
        for index, name in enumerate(CASES):
            if len(sys.argv) == 2 or name in sys.argv[2:]:
                make(name, 100 + index)
    else:
        sys.exit(0 if check() else 1)
