"""Plain PyTorch and Hugging Face transformers on the shapes of shapes.ts. One JSON line per case.

    python3 models_peer.py --device cpu|cuda --cases gen16,rm [--repeats 2] [--threads 2] [--wait]

--wait: begins once a line comes in, with everything imported by then.
"""
import argparse, json, sys, time
import torch, torch.nn.functional as F
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaModel, Qwen3Config, Qwen3Model

ap = argparse.ArgumentParser()
ap.add_argument("--device", default="cpu"); ap.add_argument("--cases", default="gen16,rm")
ap.add_argument("--repeats", type=int, default=2); ap.add_argument("--threads", type=int, default=0)
ap.add_argument("--wait", action="store_true"); ap.add_argument("--lengths", default=""); ap.add_argument("--shape", default="{}")
a = ap.parse_args()
if a.threads: torch.set_num_threads(a.threads)
cuda = a.device.startswith("cuda")
shape = json.loads(a.shape); kind = shape.pop("model_type"); dtype = getattr(torch, shape.pop("dtype"))
Config, Base = dict(llama=(LlamaConfig, LlamaModel), qwen3=(Qwen3Config, Qwen3Model))[kind]
lengths = [int(n) for n in a.lengths.split(",") if n]


def causal():
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(Config(**shape), dtype=dtype, attn_implementation="sdpa").to(a.device)


class Reward(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.body = Base._from_config(Config(**shape), dtype=dtype, attn_implementation="sdpa")
        self.head = torch.nn.Linear(shape["hidden_size"], 1, dtype=dtype)

    def forward(self, ids, mask):
        h = self.body(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        return self.head(h[torch.arange(len(ids), device=h.device), mask.sum(1) - 1]).squeeze(-1).float()


def padded(ls):
    mask = (torch.arange(max(ls))[None] < torch.tensor(ls)[:, None]).long()
    return (torch.randint(10, shape["vocab_size"] - 1000, mask.shape) * mask).to(a.device), mask.to(a.device)


def logps(m, ids, mask):
    lp = m(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, :-1].float().log_softmax(-1)
    return lp.gather(-1, ids[:, 1:, None]).squeeze(-1) * mask[:, 1:]


def timed(case, fn, tokens, warm=1):
    for _ in range(warm): fn()
    if cuda: torch.cuda.synchronize(); torch.cuda.reset_peak_memory_stats()
    best = 1e9
    for _ in range(a.repeats):
        t = time.perf_counter(); fn()
        if cuda: torch.cuda.synchronize()
        best = min(best, time.perf_counter() - t)
    peak = dict(peak_gib=round(torch.cuda.max_memory_allocated() / 2**30, 2)) if cuda else {}
    print(json.dumps(dict(case=case, tokens_per_s=round(tokens / best), step_ms=round(best * 1e3, 1), **peak)), flush=True)


def optimizer(ps):
    return torch.optim.AdamW(ps, lr=1e-6, **(dict(fused=True) if cuda else dict(foreach=True)))


def gen(n, new, plen, strong=False):
    """strong: a static cache, with which transformers compiles the decoding step and captures it as a CUDA graph."""
    m = causal().eval()
    more = dict(cache_implementation="static") if strong else {}
    def step():
        ids = torch.randint(10, shape["vocab_size"] - 1000, (n, plen), device=a.device)
        with torch.no_grad():
            m.generate(ids, attention_mask=torch.ones_like(ids), do_sample=True, temperature=1.0, top_p=0.9, top_k=0,
                       max_new_tokens=new, min_new_tokens=new, pad_token_id=0, **more)
    timed(f"gen{n}_strong" if strong else f"gen{n}", step, n * new, warm=2 if strong else 0 if cuda else 1)


def rm(ckpt=False):
    m = Reward().to(a.device).train()
    if ckpt: m.body.gradient_checkpointing_enable()
    opt = optimizer(m.parameters()); ids, mask = padded(lengths); half = len(lengths) // 2
    def step():
        r = m(ids, mask); (-F.logsigmoid(r[:half] - r[half:]).mean()).backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 10.0); opt.step(); opt.zero_grad()
    timed("rm_ckpt" if ckpt else "rm", step, sum(lengths))


def rm_strong():
    """Micro-batches of 8 sequences of like length, so that little is padded; their gradients added up."""
    m = Reward().to(a.device).train(); opt = optimizer(m.parameters()); half = len(lengths) // 2
    order = sorted(range(half), key=lambda i: lengths[i] + lengths[i + half])
    parts = [order[i:i + 4] for i in range(0, half, 4)]
    micro = [(len(part), padded([lengths[i] for i in part] + [lengths[i + half] for i in part])) for part in parts]
    def step():
        for n, (ids, mask) in micro:
            r = m(ids, mask); (-F.logsigmoid(r[:n] - r[n:]).sum() / half).backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 10.0); opt.step(); opt.zero_grad()
    timed("rm_strong", step, sum(lengths))


def dpo(lora=False):
    ls = lengths[:32]; pol = causal(); ref = None
    if lora:
        from peft import LoraConfig, get_peft_model
        pol = get_peft_model(pol, LoraConfig(r=16, lora_alpha=32, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]))
    else:
        ref = causal().eval()
    opt = optimizer([p for p in pol.parameters() if p.requires_grad]); ids, mask = padded(ls)
    def step():
        lp = logps(pol, ids, mask).sum(1)
        with torch.no_grad():
            if lora:
                with pol.disable_adapter(): rp = logps(pol, ids, mask).sum(1)
            else:
                rp = logps(ref, ids, mask).sum(1)
        d = lp - rp; (-F.logsigmoid(0.1 * (d[:16] - d[16:])).mean()).backward(); opt.step(); opt.zero_grad()
    timed("dpo_lora" if lora else "dpo", step, sum(ls))


def grpo():
    n, plen, new = 16, 128 if cuda else 32, 512 if cuda else 64
    pol, ref = causal(), causal().eval(); opt = optimizer(pol.parameters())
    def step():
        prompts = torch.randint(10, shape["vocab_size"] - 1000, (2, plen), device=a.device).repeat_interleave(8, 0); pol.eval()
        with torch.no_grad():
            ids = pol.generate(prompts, attention_mask=torch.ones_like(prompts), do_sample=True, temperature=1.0, top_p=0.9, top_k=0,
                               max_new_tokens=new, min_new_tokens=new, pad_token_id=0)
        pol.train(); mask = torch.ones_like(ids); of = mask[:, 1:].clone(); of[:, :plen - 1] = 0
        reward = torch.randn(2, 8, device=a.device)
        adv = ((reward - reward.mean(1, keepdim=True)) / reward.std(1, keepdim=True)).view(-1, 1)
        with torch.no_grad(): rp, old = logps(ref, ids, mask), logps(pol, ids, mask)
        lp = logps(pol, ids, mask); ratio = (lp - old).exp(); d = rp - lp
        loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv) + 0.01 * (d.exp() - d - 1)
        ((loss * of).sum() / of.sum()).backward(); torch.nn.utils.clip_grad_norm_(pol.parameters(), 1.0); opt.step(); opt.zero_grad()
    timed("grpo", step, n * new)


CASES = dict(gen16=lambda: gen(16, 512 if cuda else 128, 128 if cuda else 32), gen128=lambda: gen(128, 512, 128),
             gen16_strong=lambda: gen(16, 512 if cuda else 128, 128 if cuda else 32, True), gen128_strong=lambda: gen(128, 512, 128, True),
             rm_strong=rm_strong, rm=rm, rm_ckpt=lambda: rm(True), dpo=dpo, dpo_lora=lambda: dpo(True), grpo=grpo)
if a.wait:
    if cuda: torch.zeros(1, device=a.device)
    sys.stdin.readline()
for c in a.cases.split(","):
    try:
        CASES[c]()
    except Exception as e:
        print(json.dumps(dict(case=c, error=str(e)[:300])), flush=True)
    if cuda: torch.cuda.empty_cache()
