#!/usr/bin/env python3
"""Trains the nets of configs/bench in PyTorch and in Wootz from the same first weights, on the same
batches in the same order, and prints the losses of both.

Needs PyTorch and a `wootz` binary; run it in the root of the repository:

    python3 benches/compare_torch.py --wootz target/release/wootz --device nvidia

PyTorch runs in strict f32 (TF32 off) on CUDA where there is a card, else on the CPU. Each net is
built here by PyTorch's modules alone, and its weights are handed to Wootz as a safetensors file.
"""

import argparse
import json
import pathlib
import struct
import subprocess
import tempfile

import torch
from torch import nn
from torch.nn import functional as F


class Basic(nn.Module):
    """The basic block of a residual net (He et al. 2016)."""

    def __init__(self, wide_in, wide_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(wide_in, wide_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(wide_out)
        self.conv2 = nn.Conv2d(wide_out, wide_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(wide_out)
        self.shortcut = nn.Identity()
        if stride != 1 or wide_in != wide_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(wide_in, wide_out, 1, stride, bias=False), nn.BatchNorm2d(wide_out)
            )

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


def resnet18():
    layers = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    wide = 64
    for out, stride in [(64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)]:
        layers.append(Basic(wide, out, stride))
        wide = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class Transformer(nn.Module):
    """A pre-norm block with causal self-attention (Radford et al. 2019)."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.back = nn.Linear(4 * width, width)

    def forward(self, x):
        parts = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.back(F.gelu(self.wide(self.norm2(x))))


class Gpt(nn.Module):
    """A GPT whose output weights are those of its embedding."""

    def __init__(self, layers, heads, width, context, vocab):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.places = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Transformer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, ids):
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        return self.norm(self.blocks(x)) @ self.tokens.weight.T


class Lstm(nn.Module):
    def __init__(self, vocab, width):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True)
        self.out = nn.Linear(width, vocab)

    def forward(self, ids):
        return self.out(self.lstm(self.tokens(ids))[0])


def philox(counter, key):
    """Philox4x32-10 (Salmon et al. 2011)."""
    c, k = list(counter), list(key)
    for _ in range(10):
        one, two = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(two >> 32) ^ c[1] ^ k[0], two & 0xFFFFFFFF, (one >> 32) ^ c[3] ^ k[1], one & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def table(folder, batch, steps):
    """Rows of 784 normal numbers with a class each, ten batches of them, again and again."""
    rows = torch.randn(10 * batch, 784)
    classes = torch.arange(10 * batch).remainder(10)
    classes = classes[torch.randperm(len(classes))]
    with open(folder / "rows.csv", "w") as file:
        for row, label in zip(rows.tolist(), classes.tolist()):
            file.write(",".join(f"{value:.9g}" for value in row) + f",{label}\n")
    source = {"csv": {"path": str(folder / "rows.csv"), "header": False, "target": 784, "task": "classification"}}
    at = [slice(step % 10 * batch, (step % 10 + 1) * batch) for step in range(steps)]
    return source, [(rows[part], classes[part]) for part in at]


def images(folder, batch, steps):
    """Random images of ten classes in CIFAR-10's format, ten batches, again and again."""
    pixels = torch.randint(0, 256, (10 * batch, 3072), dtype=torch.uint8)
    classes = torch.randint(0, 10, (10 * batch,))
    records = torch.cat([classes.to(torch.uint8)[:, None], pixels], dim=1)
    (folder / "images.bin").write_bytes(bytes(records.flatten().tolist()))
    values = pixels.float().mul(torch.tensor(1 / 255)).view(-1, 3, 32, 32)
    at = [slice(step % 10 * batch, (step % 10 + 1) * batch) for step in range(steps)]
    return {"cifar10": {"path": str(folder / "images.bin")}}, [(values[part], classes[part]) for part in at]


def text(folder, batch, steps, context, vocab=65):
    """Characters of which each allows three successors; windows follow one another."""
    length = (batch * steps + 2) * context + 1
    draws = torch.randint(0, 3, (length,)).tolist()
    ids = [0]
    for draw in draws[1:]:
        ids.append((ids[-1] * 5 + draw) % vocab)
    (folder / "text.txt").write_text("".join(chr(48 + i) for i in ids))
    # Windows of the first epoch begin at a place that the seed, 0, decides.
    shift = philox([0, 0, 0x53484946, 0], [0, 0])[0] % context
    ids = torch.tensor(ids)[shift:]
    inputs = ids[: batch * steps * context].view(steps, batch, context)
    targets = ids[1 : 1 + batch * steps * context].view(steps, batch, context)
    return {"text": {"path": str(folder / "text.txt"), "context": context}}, list(zip(inputs, targets))


def adamw(rate):
    return lambda parameters: torch.optim.AdamW(parameters, rate, weight_decay=0.01)


def momentum(parameters):
    return torch.optim.SGD(parameters, 0.01, momentum=0.9, weight_decay=5e-4)


def mlp(*widths):
    layers = []
    for wide_in, wide_out in zip(widths, widths[1:]):
        layers += [nn.Linear(wide_in, wide_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


# For each configuration: net, optimizer, samples of a step, data.
NETS = {
    "mlp": (lambda: mlp(784, 1024, 1024, 10), adamw(1e-3), 128, table),
    "mlp-small": (lambda: mlp(784, 128, 10), lambda p: torch.optim.SGD(p, 0.01), 32, table),
    "resnet18": (resnet18, momentum, 128, images),
    "gpt": (lambda: Gpt(6, 6, 384, 256, 65), adamw(3e-4), 64, lambda f, b, s: text(f, b, s, 256)),
    "w5-lstm": (lambda: Lstm(65, 512), adamw(3e-4), 64, lambda f, b, s: text(f, b, s, 128)),
}


def save(path, names, parameters):
    """Writes a safetensors file: a header in JSON, then the bytes of all tensors."""
    header, blobs, at = {}, [], 0
    for name, parameter in zip(names, parameters, strict=True):
        blob = struct.pack(f"<{parameter.numel()}f", *parameter.detach().cpu().flatten().tolist())
        header[name] = {"dtype": "F32", "shape": list(parameter.shape), "data_offsets": [at, at + len(blob)]}
        at += len(blob)
        blobs.append(blob)
    words = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(words)) + words + b"".join(blobs))


def theirs(net, optimizer, batches, device):
    """Losses of PyTorch."""
    losses = []
    for inputs, targets in batches:
        optimizer.zero_grad()
        outputs = net(inputs.to(device))
        loss = F.cross_entropy(outputs.flatten(0, -2), targets.to(device).flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def ours(wootz, config, folder, source, batch, steps, device, precision):
    """Losses of Wootz."""
    sets = {
        "data": {"train": source},
        "weights": {"path": str(folder / "weights.safetensors"), "strict": False},
        "train": {"steps": steps, "batch_size": batch, "shuffle": False},
        "precision": precision,
    }
    run = folder / f"run-{precision}"
    command = [wootz, "train", "--config", config, "--device", device, "--run-dir", str(run)]
    for key, value in sets.items():
        command += ["--set", f"{key}={json.dumps(value)}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row["train/loss"] for row in rows if "train/loss" in row]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wootz", default="wootz")
    parser.add_argument("--device", default="auto", help="Wootz's device")
    parser.add_argument("--nets", default=",".join(NETS))
    parser.add_argument("--precisions", default="f32,mixed")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, help="samples of a step, instead of the configuration's")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for name in args.nets.split(","):
        build, optimizer, batch, data = NETS[name]
        batch = args.batch or batch
        torch.manual_seed(0)
        net = build()
        config = f"configs/bench/{name}.yaml"
        plan = subprocess.run(
            [args.wootz, "plan", "--config", config, "--device", "cpu", "--json"],
            check=True, capture_output=True, text=True,
        )
        (group,) = json.loads(plan.stdout)["groups"]
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            source, batches = data(folder, batch, args.steps)
            save(folder / "weights.safetensors", group["parameters"], net.parameters())
            net.to(device)
            result = {"torch": theirs(net, optimizer(net.parameters()), batches, device)}
            for precision in args.precisions.split(","):
                losses = ours(args.wootz, config, folder, source, batch, args.steps, args.device, precision)
                result[precision] = losses
        for who, losses in result.items():
            apart = max(abs(a - b) for a, b in zip(losses, result["torch"], strict=True))
            shown = {step: round(losses[step - 1], 5) for step in (1, 10, 50, 100) if step <= args.steps}
            print(json.dumps({"net": name, "who": who, "torch_on": device, "losses": shown, "apart": round(apart, 6)}), flush=True)


if __name__ == "__main__":
    main()
