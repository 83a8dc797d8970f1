"""Makes tests/models/fixtures: tiny random models of every family in several configurations, with what transformers computes
for them. For development only (the tests read the files, never Python):

    python tests/models/make_fixtures.py [name ...]

Weights are kept as bfloat16 and computed with in float32, so that a fixture stays small and also tests the conversion.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

HERE = Path(__file__).parent / "fixtures"
VOCAB, LENGTH, SHORTER, NEW = 67, 13, 8, 10

common = dict(vocab_size=VOCAB, bos_token_id=1, eos_token_id=2, pad_token_id=0)
gpt2 = dict(model_type="gpt2", n_embd=24, n_layer=2, n_head=2, n_positions=32)
neo = dict(model_type="gpt_neo", hidden_size=24, num_layers=2, num_heads=2, max_position_embeddings=32, window_size=4)
gptj = dict(model_type="gptj", n_embd=24, n_layer=2, n_head=2, n_positions=32, rotary_dim=8)
llama = dict(
    model_type="llama",
    hidden_size=24,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=3,
    num_key_value_heads=1,
    max_position_embeddings=64,
)
wide = dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24)
mistral = {**llama, "model_type": "mistral"}
qwen2 = {**llama, **wide, "model_type": "qwen2", "sliding_window": 4}
qwen3 = {**llama, "model_type": "qwen3", "head_dim": 12, "sliding_window": 4}
olmo2 = {**llama, **wide, "model_type": "olmo2"}
neox = dict(
    model_type="gpt_neox",
    hidden_size=32,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=2,
    max_position_embeddings=64,
)
bloom = dict(model_type="bloom", hidden_size=24, n_layer=2, n_head=2)
falcon = dict(model_type="falcon", hidden_size=24, num_hidden_layers=2, num_attention_heads=3, max_position_embeddings=64)

# Theta 100 makes the slow pairs turn visibly within a dozen tokens.
def rope(kind, theta=100.0, **fields):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **fields}}


llama3 = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
yarn = rope("yarn", factor=4.0, original_max_position_embeddings=16)
yarn_tuned = rope(
    "yarn",
    theta=50.0,
    factor=2.5,
    original_max_position_embeddings=24,
    beta_fast=4.0,
    beta_slow=0.5,
    mscale=0.8,
    mscale_all_dim=0.4,
    truncate=False,
)

# name: (fields, edit of the saved config.json into an older dialect or None)
FIXTURES = {
    "gpt2": (gpt2, None),
    "gpt2-unscaled": ({**gpt2, "scale_attn_weights": False, "n_inner": 40, "activation_function": "relu", "tie_word_embeddings": False}, None),
    "gpt2-by-layer": ({**gpt2, "n_head": 3, "scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True, "activation_function": "quick_gelu"}, None),
    "gpt2-tanh": ({**gpt2, "n_head": 4, "activation_function": "tanh", "layer_norm_epsilon": 0.01}, None),
    "gpt_neo": ({**neo, "attention_types": [[["global", "local"], 1]]}, None),
    "gpt_neo-local-first": ({**neo, "num_layers": 3, "attention_types": [[["local"], 2], [["global"], 1]], "intermediate_size": 20, "activation_function": "silu"}, None),
    "gptj": (gptj, None),
    "gptj-whole-head": ({**gptj, "rotary_dim": 12, "n_inner": 32, "tie_word_embeddings": True, "activation_function": "gelu"}, None),
    "llama": (llama, None),
    "llama-head-dim": ({**llama, "head_dim": 12, "num_attention_heads": 4, "num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "hidden_act": "gelu_pytorch_tanh"}, None),
    "llama-linear": ({**llama, **rope("linear", factor=3.0)}, "4"),
    "llama-dynamic": ({**llama, **rope("dynamic", factor=2.0), "max_position_embeddings": 9}, None),
    "llama-llama3": ({**llama, "hidden_size": 32, "num_attention_heads": 2, **llama3}, "4"),
    "llama-yarn": ({**llama, "hidden_size": 32, "num_attention_heads": 2, **yarn}, "4"),
    "llama-yarn-tuned": ({**llama, "hidden_size": 32, "num_attention_heads": 2, **yarn_tuned}, None),
    "mistral": ({**mistral, "sliding_window": 5}, None),
    "mistral-full": ({**mistral, "sliding_window": None, "head_dim": 16, "num_attention_heads": 2, "tie_word_embeddings": True, **rope("default", 1000.0)}, "4"),
    "qwen2": ({**qwen2, "tie_word_embeddings": True}, None),
    "qwen2-window": ({**qwen2, "use_sliding_window": True, "max_window_layers": 1}, "4"),
    "qwen2-layer-types": ({**qwen2, "use_sliding_window": True, "sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]}, None),
    "qwen3": ({**qwen3, "tie_word_embeddings": True}, None),
    "qwen3-bias": ({**qwen3, "attention_bias": True, "use_sliding_window": True, "max_window_layers": 1}, "4"),
    "olmo2": (olmo2, None),
    "olmo2-bias": ({**olmo2, "num_key_value_heads": 4, "attention_bias": True, "tie_word_embeddings": True}, "4"),
    "gpt_neox": (neox, None),
    "gpt_neox-sequential": ({**neox, "use_parallel_residual": False, "attention_bias": False, "tie_word_embeddings": True, "hidden_act": "gelu_fast", **rope("default", 500.0, partial_rotary_factor=0.5)}, "4"),
    "gpt_neox-odd-share": ({**neox, "hidden_size": 24, **rope("linear", factor=2.0, partial_rotary_factor=0.25)}, None),
    "bloom": ({**bloom, "n_head": 4}, None),
    "bloom-normed-residual": ({**bloom, "n_head": 3, "apply_residual_connection_post_layernorm": True, "tie_word_embeddings": False}, "old names"),
    "falcon": (falcon, None),
    "falcon-new-decoder": ({**falcon, "hidden_size": 32, "num_attention_heads": 4, "num_kv_heads": 2, "new_decoder_architecture": True, "ffn_hidden_size": 40}, "4"),
    "falcon-new-one-norm": ({**falcon, "num_kv_heads": 1, "new_decoder_architecture": True, "num_ln_in_parallel_attn": 1, "bias": True, "tie_word_embeddings": False}, None),
    "falcon-alibi": ({**falcon, "alibi": True, "parallel_attn": False, "multi_query": False, "bias": True, "activation": "relu"}, None),
    "falcon-alibi-parallel": ({**falcon, "num_attention_heads": 6, "alibi": True, "ffn_hidden_size": 48}, None),
    "falcon-sequential": ({**falcon, "hidden_size": 32, "num_attention_heads": 2, "parallel_attn": False, "multi_query": False, "ffn_hidden_size": 40, **yarn}, None),
}


def randomise(model, seed):
    """Every parameter is random, norms and biases too: a part that is left out or swapped then shows."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        is_norm = parameter.dim() == 1 and name.endswith("weight")
        parameter.data = 1 + 0.3 * noise if is_norm else (0.2 if parameter.dim() == 1 else 0.25) * noise


def to_older_dialect(config, edit):
    if edit == "old names":
        config["n_embed"] = config.pop("hidden_size")
        config["num_attention_heads"] = config.pop("n_head")
        config["num_hidden_layers"] = config.pop("n_layer")
        return
    parameters = config.pop("rope_parameters")
    theta, share = parameters.pop("rope_theta"), parameters.pop("partial_rotary_factor", None)
    config["rotary_emb_base" if config["model_type"] == "gpt_neox" else "rope_theta"] = theta
    if share is not None:
        config["rotary_pct"] = share
    kind = parameters.pop("rope_type")
    config["rope_scaling"] = None if kind == "default" else {"type" if kind != "llama3" else "rope_type": kind, **parameters}
    config.pop("layer_types", None)
    config["torch_dtype"] = config.pop("dtype")


def greedy(model, prompt):
    """Whole forwards, no cache: dynamic rope would otherwise mix frequencies."""
    ids, gap = prompt.clone(), 1e9
    for _ in range(NEW):
        logits = model(ids, use_cache=False).logits[0, -1]
        top = logits.topk(2)
        gap = min(gap, (top.values[0] - top.values[1]).item())
        ids = torch.cat([ids, top.indices[:1].view(1, 1)], dim=1)
    return ids, gap


def make(name, fields, edit, seed):
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    config = AutoConfig.for_model(fields["model_type"], **{**common, **{k: v for k, v in fields.items() if k != "model_type"}})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    randomise(model, seed)
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    path = folder / "config.json"
    saved = json.loads(path.read_text())
    if edit:
        to_older_dialect(saved, edit)
    path.write_text(json.dumps(saved, indent=1, sort_keys=True) + "\n")

    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    model.eval()
    generator = torch.Generator().manual_seed(seed + 1)
    ids = torch.randint(3, VOCAB, (2, LENGTH), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, SHORTER:] = 0
    padded_ids = torch.randint(3, VOCAB, (2, LENGTH), generator=generator) * mask
    output = model(ids, labels=ids)
    output.loss.backward()
    norms = {key: parameter.grad.norm().item() for key, parameter in model.named_parameters()}
    with torch.no_grad():
        if "dynamic" in name:
            # The frequencies follow the longest of a batch: take each sequence alone, as a packed batch does.
            padded = torch.zeros_like(output.logits)
            for row, length in enumerate((LENGTH, SHORTER)):
                alone = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
                padded[row, :length] = alone(padded_ids[row : row + 1, :length]).logits[0]
        else:
            padded = model(padded_ids, attention_mask=mask).logits
        tokens, gap = greedy(model, ids[:1, :6])
    if gap < 0.01:
        return False
    tensors = dict(input_ids=ids, padded_ids=padded_ids, attention_mask=mask, greedy=tokens, logits=output.logits.detach(), padded_logits=padded)
    save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, folder / "reference.safetensors")
    reference = dict(loss=output.loss.item(), grad_norms=norms, transformers=transformers.__version__)
    (folder / "reference.json").write_text(json.dumps(reference, indent=1) + "\n")
    assert load_file(folder / "reference.safetensors")["logits"].isfinite().all()
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{name:24} {size:6} bytes, loss {output.loss.item():.4f}, smallest gap {gap:.3f}, seed {seed}")
    return True


if __name__ == "__main__":
    torch.set_num_threads(1)
    for index, (name, (fields, edit)) in enumerate(FIXTURES.items()):
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        seed = 1000 + 10 * index
        while not make(name, fields, edit, seed):
            seed += 1
