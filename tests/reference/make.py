"""Writes the PyTorch reference files that the tests of this folder's parent compare with.

Run with PyTorch (CPU), numpy and safetensors installed:

    python make.py [folder]        # default: the folder of this script

Each training file holds the first parameters, the batches, the loss of each step, the gradients
of the first step and the last parameters of one run; README.md lists the names.
"""

import copy
import json
import platform
import sys
from pathlib import Path

import numpy
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

import ops

STEPS = 20


class Gpt(nn.Module):
    """A pre-norm GPT with learned positions; the output layer is the token embedding."""

    def __init__(self, vocab, width, heads, context, layers):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Embedding(context, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(width)
        self.fc = nn.Linear(width, 4 * width)
        self.proj = nn.Linear(4 * width, width)

    def forward(self, x):
        length = x.shape[1]
        hidden = torch.triu(torch.ones(length, length, dtype=torch.bool), diagonal=1)
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, attn_mask=hidden, need_weights=False)[0]
        return x + self.proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


def mlp():
    return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 5))


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1, stride=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()),  # one item: global_avg_pool
        nn.Linear(16, 10),
    )


def cnn_groups():
    return nn.Sequential(
        nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2),
        nn.Sigmoid(),
        nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=2),
        nn.Tanh(),
        nn.AvgPool2d(3, stride=2, padding=1),
        nn.Conv2d(8, 6, 2, groups=2),
        nn.SiLU(),
        nn.Flatten(),
        nn.Linear(24, 3),
    )


def spread(model, generator):
    """Moves every parameter that starts at a constant (0 or 1), so that none hides an error."""
    for param in model.parameters():
        if param.min() == param.max():
            param.data.add_(0.2 * torch.randn(param.shape, generator=generator))
    return model


def classified(shape, classes, generator):
    """Normal inputs, labelled by the largest of `classes` fixed random projections."""
    x = torch.randn(STEPS, *shape, generator=generator)
    flat = x.flatten(2)
    teacher = torch.randn(flat.shape[2], classes, generator=generator)
    return x, (flat @ teacher).argmax(-1)


def regressed(shape, outputs, generator):
    """Normal inputs with bounded targets from a fixed random projection."""
    x = torch.randn(STEPS, *shape, generator=generator)
    flat = x.flatten(2)
    teacher = torch.randn(flat.shape[2], outputs, generator=generator) / flat.shape[2] ** 0.5
    return x, torch.tanh(flat @ teacher)


def sequences(batch, context, vocab, generator):
    """Tokens that count on by a stride of their own, some of them replaced; a target is the next
    token. A quarter of the targets is ignored, and in step 3 all those of one sequence."""
    start = torch.randint(vocab, (STEPS, batch, 1), generator=generator)
    stride = torch.randint(1, 4, (STEPS, batch, 1), generator=generator)
    tokens = (start + stride * torch.arange(context + 1)) % vocab
    noise = torch.rand(tokens.shape, generator=generator) < 0.1
    tokens = torch.where(noise, torch.randint(vocab, tokens.shape, generator=generator), tokens)
    x, y = tokens[..., :-1].contiguous(), tokens[..., 1:].clone()
    y[torch.rand(y.shape, generator=generator) < 0.25] = -100
    y[3, 1] = -100
    return x, y


def train(model, optimizer_of, loss_of, x, y, clip=None):
    """Trains `model` in place: one step a batch. Losses, norms before clipping, first gradients."""
    optimizer = optimizer_of(model.parameters())
    losses, norms, first = [], [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model(x[step]), y[step])
        loss.backward()
        if step == 0:
            first = {name: p.grad.clone() for name, p in model.named_parameters()}
        norm = nn.utils.clip_grad_norm_(model.parameters(), clip or float("inf"))
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm.item())
    return losses, norms, first


def weights(model):
    """The state dict as users of PyTorch know it, less BatchNorm's counter of batches."""
    return {k: v.clone() for k, v in model.state_dict().items() if not k.endswith("num_batches_tracked")}


def record(model, optimizer_of, loss_of, x, y, clip=None):
    """All tensors of a run in f32, and what the same run in f64 gives."""
    tensors = {f"init.{k}": v for k, v in weights(model).items()}
    tensors |= {"x": x, "y": y}
    exact = copy.deepcopy(model).double()
    x64, y64 = (t.double() if t.is_floating_point() else t for t in (x, y))
    for mark, net, a, b in (("", model, x, y), ("64", exact, x64, y64)):
        net.train()
        losses, norms, first = train(net, optimizer_of, loss_of, a, b, clip)
        tensors["losses" + mark] = torch.tensor(losses)
        tensors["grad_norms" + mark] = torch.tensor(norms)
        tensors |= {f"grad0{mark}.{k}": v for k, v in first.items()}
        tensors |= {f"final{mark}.{k}": v for k, v in weights(net).items()}
        net.eval()
        with torch.no_grad():
            tensors["eval_logits" + mark] = net(a[-1])
    return tensors


def mlp_run(sgd):
    generator = torch.Generator().manual_seed(11)
    x, y = classified((16, 20), 5, generator)
    if not sgd:
        adamw = {"lr": 1e-2, "weight_decay": 0.1, "betas": (0.9, 0.999), "eps": 1e-8}
        spec = {"optimizer": {"adamw": adamw | {"decay": "all"}}, "loss": "cross_entropy"}
        return record(mlp(), lambda p: torch.optim.AdamW(p, **adamw), F.cross_entropy, x, y), spec
    sgd = {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-3}
    spec = {
        "optimizer": {"sgd": sgd | {"decay": "all"}},
        "loss": {"cross_entropy": {"label_smoothing": 0.1}},
        "clip_norm": 0.5,
    }
    smoothed = lambda logits, target: F.cross_entropy(logits, target, label_smoothing=0.1)
    return record(mlp(), lambda p: torch.optim.SGD(p, **sgd), smoothed, x, y, clip=0.5), spec


def cnn_run():
    generator = torch.Generator().manual_seed(12)
    x, y = classified((16, 1, 8, 8), 10, generator)
    sgd = {"lr": 0.1, "momentum": 0.9}
    spec = {"optimizer": {"sgd": sgd}, "loss": "cross_entropy"}
    return record(spread(cnn(), generator), lambda p: torch.optim.SGD(p, **sgd), F.cross_entropy, x, y), spec


def cnn_groups_run():
    generator = torch.Generator().manual_seed(13)
    x, y = regressed((8, 4, 12, 12), 3, generator)
    adam = {"lr": 3e-3, "betas": (0.9, 0.999), "eps": 1e-8}
    spec = {"optimizer": {"adam": adam}, "loss": "mse"}
    return record(cnn_groups(), lambda p: torch.optim.Adam(p, **adam), F.mse_loss, x, y), spec


def gpt_run():
    generator = torch.Generator().manual_seed(14)
    x, y = sequences(4, 12, 17, generator)
    adamw = {"lr": 3e-3, "weight_decay": 0.01, "betas": (0.9, 0.999), "eps": 1e-8}
    spec = {
        "optimizer": {"adamw": adamw | {"decay": "all"}},
        "loss": {"cross_entropy": {"ignore_index": -100}},
        "gpt": {"vocab": 17, "width": 16, "heads": 2, "context": 12, "layers": 2},
    }
    model = spread(Gpt(17, 16, 2, 12, 2), generator)
    for embedding in (model.wte, model.wpe):
        embedding.weight.data.mul_(0.5)
    loss = lambda logits, target: F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-100)
    return record(model, lambda p: torch.optim.AdamW(p, **adamw), loss, x, y), spec


def write(folder, name, tensors, spec):
    """Floats as f32, integers as i32; what was run goes into the file's metadata as JSON,
    under one key because safetensors keeps no order among several."""
    kind = lambda tensor: torch.float32 if tensor.is_floating_point() else torch.int32
    stored = {k: v.detach().to(kind(v)).contiguous().clone() for k, v in tensors.items()}
    made_with = {
        "torch": torch.__version__.split("+")[0],
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }
    metadata = {"spec": json.dumps(spec | {"made_with": made_with})}
    path = folder / f"{name}.safetensors"
    save_file(stored, path, metadata=metadata)
    print(f"{path.name}: {len(stored)} tensors, {path.stat().st_size} bytes")


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    runs = {
        "mlp": lambda: mlp_run(sgd=False),
        "mlp_sgd": lambda: mlp_run(sgd=True),
        "cnn": cnn_run,
        "cnn_groups": cnn_groups_run,
        "gpt": gpt_run,
        "ops": ops.cases,
    }
    for seed, (name, run) in enumerate(runs.items()):
        torch.manual_seed(seed)
        write(folder, name, *run())


if __name__ == "__main__":
    main()
