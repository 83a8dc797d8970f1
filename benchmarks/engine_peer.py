"""The peer of benchmarks/engine.ts: the same cases in Python's torch, one per line of standard input.

  echo add | python3 engine_peer.py '{"device": "cpu", "threads": 2, "seconds": 0.5}'

Prints {"ready": version} first, then {"case": name, "seconds": best} per line.
"""
import json, sys, time
import torch
import torch.nn as nn
import torch.nn.functional as F

options = json.loads(sys.argv[1])
device = options['device']
cuda = device.startswith('cuda')
torch.set_num_threads(options['threads'])
torch.manual_seed(0)


def best(body, calls=1):
    """The shortest of as many runs as fit the time, after two to warm up; per call."""
    sync = torch.cuda.synchronize if cuda else lambda: None
    shortest, until = float('inf'), time.perf_counter() + options['seconds']
    for i in range(100000):
        sync()
        start = time.perf_counter()
        body()
        sync()
        if i >= 2:
            shortest = min(shortest, time.perf_counter() - start)
            if time.perf_counter() > until:
                break
    return shortest / calls


def add(grad):
    x, y = torch.ones(8, device=device, requires_grad=grad), torch.ones(8, device=device)

    def body():
        for _ in range(1000):
            x.add(y)
    with torch.set_grad_enabled(grad):
        return best(body, 1000)


def product(size, dtype):
    """Where it would take seconds (bf16 on a CPU without it), the rate of a small one."""
    def timed(n):
        a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
        with torch.no_grad():
            return best(lambda: a.matmul(b))
    small = timed(128) * (size / 128) ** 3
    return small if small > 4 else timed(size)


class Optimiser:
    """AdamW as it comes; half-precision weights have f32 masters, as in attune."""
    def __init__(self, model):
        self.weights = list(model.parameters())
        self.half = self.weights[0].dtype != torch.float32
        self.masters = [w.detach().float().requires_grad_() for w in self.weights] if self.half else self.weights
        self.adamw = torch.optim.AdamW(self.masters, lr=1e-4, fused=True if cuda else None)

    def step(self):
        if self.half:
            for master, weight in zip(self.masters, self.weights):
                master.grad = weight.grad.float()
        self.adamw.step()
        if self.half:
            with torch.no_grad():
                torch._foreach_copy_(self.weights, self.masters)
        for weight in self.weights:
            weight.grad = None


def mlp():
    layers = [module for _ in range(6) for module in (nn.Linear(512, 512), nn.ReLU())][:-1]
    model = nn.Sequential(*layers).to(device)
    optimiser = Optimiser(model)
    x, y = torch.randn(64, 512, device=device), torch.randn(64, 512, device=device)

    def step():
        F.mse_loss(model(x), y).backward()
        optimiser.step()
    return best(step)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, dim))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def attention():
    dtype = torch.bfloat16 if cuda else torch.float32
    model = nn.Sequential(*[Block(256, 4) for _ in range(4)]).to(device, dtype)
    optimiser = Optimiser(model)
    x = torch.randn(8, 128, 256, device=device).to(dtype)

    def step():
        model(x).float().square().mean().backward()
        optimiser.step()
    return best(step)


cases = {
    'add': lambda: add(False),
    'add with grad': lambda: add(True),
    'mlp step': mlp,
    'attention step': attention,
}
for size in (1024, 2048):
    for name in ('float32', 'bfloat16'):
        cases[f'{size}³ {name}'] = lambda size=size, name=name: product(size, getattr(torch, name))

print(json.dumps({'ready': torch.__version__}), flush=True)
for line in sys.stdin:
    name = line.strip()
    print(json.dumps({'case': name, 'seconds': cases[name]()}), flush=True)
