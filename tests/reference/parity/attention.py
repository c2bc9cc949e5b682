"""Attention with all its options."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from record import Family

family = Family("attention")


def turned(x, theta):
    """Rotary positions on [batch, heads, length, dim], features in halves as in GPT-NeoX and Llama."""
    length, dim = x.shape[-2:]
    frequencies = theta ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
    cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def slopes(heads):
    """As published with ALiBi."""
    closest = 2 ** math.floor(math.log2(heads))
    powers = lambda n: [2 ** (-8 * (i + 1) / n) for i in range(n)]
    return torch.tensor(powers(closest) + powers(2 * closest)[0::2][: heads - closest], dtype=torch.float64)


class Attention(nn.Module):
    """Self-attention on top of F.scaled_dot_product_attention."""

    def __init__(self, features, num_heads, num_kv_heads=None, head_dim=None, bias=True, **options):
        super().__init__()
        self.heads, self.keys = num_heads, num_kv_heads or num_heads
        self.dim = head_dim or features // num_heads
        width = (self.heads + 2 * self.keys) * self.dim
        self.in_proj_weight = nn.Parameter(torch.randn(width, features))
        self.in_proj_bias = nn.Parameter(torch.randn(width)) if bias else None
        self.out_proj = nn.Linear(self.heads * self.dim, features, bias=bias)
        self.options = options

    def forward(self, x, *more):
        batch, length, _ = x.shape
        qkv = F.linear(x, self.in_proj_weight, self.in_proj_bias).unflatten(-1, (-1, self.dim)).transpose(1, 2)
        q, k, v = qkv.split([self.heads, self.keys, self.keys], 1)
        positions = self.options.get("positions")
        if isinstance(positions, dict) and "rope" in positions:
            q, k = (turned(part, positions["rope"].get("theta", 10000.0)) for part in (q, k))
        at = torch.arange(length)
        behind = at[:, None] - at
        mask = torch.zeros(self.heads, length, length, dtype=torch.float64)
        if positions == "alibi":
            mask = mask - slopes(self.heads)[:, None, None] * behind.abs()
        if self.options.get("causal"):
            seen = (behind >= 0) & (behind < self.options.get("window", length))
            mask = mask.masked_fill(~seen, -torch.inf)
        segments = torch.zeros(batch, length)
        for name, value in zip((n for n in NUMBERED if n in self.options), more):
            if name == "lengths":
                segments[at >= value[:, None]] = -1
            if name == "key_padding_mask":
                segments[value != 0] = -1
            if name == "documents":
                segments = torch.where(segments < 0, segments, value.float())
        query, key = segments[:, :, None], segments[:, None, :]
        seen = (key >= 0) & ((query < 0) | (query == key))
        mask = torch.where(seen[:, None], mask, -torch.inf)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        return self.out_proj(y.transpose(1, 2).flatten(2))


# Options that name an input, in the order of the inputs.
NUMBERED = ("lengths", "key_padding_mask", "documents")


def case(name, features, options, shape):
    numbers = {n: torch.tensor(options[n]) for n in NUMBERED if n in options}
    options = options | {n: f"x{index + 1}" for index, n in enumerate(numbers)}
    module = Attention(features, **options)
    draws = [lambda family, value=value: value for value in numbers.values()]
    family.layer(name, "multi_head_attention", options, module, [shape + (features,)] + draws)


case("no_bias", 6, {"num_heads": 2, "bias": False}, (2, 5))
case("head_dim", 7, {"num_heads": 3, "head_dim": 5}, (2, 4))
case("kv_heads", 12, {"num_heads": 6, "num_kv_heads": 2, "causal": True}, (2, 7))
case("kv_heads_one", 8, {"num_heads": 4, "num_kv_heads": 1}, (1, 5))
case("rope", 12, {"num_heads": 2, "positions": {"rope": {}}, "causal": True}, (2, 11))
case("rope_theta", 8, {"num_heads": 4, "positions": {"rope": {"theta": 500.0}}}, (1, 7))
case("alibi", 12, {"num_heads": 3, "positions": "alibi", "causal": True}, (2, 9))
case("alibi_full", 8, {"num_heads": 4, "positions": "alibi"}, (1, 7))
case("window", 8, {"num_heads": 2, "causal": True, "window": 3}, (2, 19))
case("window_one", 4, {"num_heads": 1, "causal": True, "window": 1}, (1, 5))
llama = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 6, "causal": True, "window": 5, "bias": False}
case("llama", 10, llama | {"positions": {"rope": {}}}, (2, 13))
case("one", 2, {"num_heads": 1, "positions": {"rope": {}}}, (1, 1))

case("lengths", 8, {"num_heads": 2, "lengths": [3, 7, 1]}, (3, 7))
case("lengths_causal", 6, {"num_heads": 3, "causal": True, "lengths": [19, 5]}, (2, 19))
hidden = [[1, 1, 0, 0, 1], [0, 0, 0, 0, 1], [1, 1, 1, 1, 1]]
case("key_padding_mask", 4, {"num_heads": 2, "key_padding_mask": hidden}, (3, 5))
# The first queries see nothing.
case("nothing_seen", 4, {"num_heads": 2, "causal": True, "key_padding_mask": hidden}, (3, 5))
packed = [[0, 0, 0, 1, 1, 2, 2, 2, 2, -1, -1], [3, 3, 1, 1, 1, 1, 1, 0, 0, 0, 0]]
case("documents", 8, {"num_heads": 2, "documents": packed}, (2, 11))
case("documents_causal", 8, {"num_heads": 2, "causal": True, "documents": packed}, (2, 11))
case("documents_window", 12, {"num_heads": 2, "causal": True, "window": 3, "documents": packed}, (2, 11))
case("documents_lengths", 4, {"num_heads": 1, "lengths": [9, 6], "documents": packed}, (2, 11))
gqa = {"num_heads": 4, "num_kv_heads": 2, "positions": {"rope": {}}, "causal": True}
case("documents_llama", 16, gqa | {"documents": packed}, (2, 11))
case("documents_alibi", 6, {"num_heads": 3, "positions": "alibi", "documents": packed}, (2, 11))

padding = torch.tensor([[False, False, True, False], [False, True, True, True]])
masks = {
    "cross_lengths": ("lengths", torch.tensor([3, 1]), torch.arange(4) >= torch.tensor([[3], [1]])),
    "cross_key_padding_mask": ("key_padding_mask", padding.int(), padding),
}
for name, (option, given, hidden) in masks.items():
    options = {"num_heads": 2, "from": ["x0", "x1"], option: "x2"}
    family.layer(
        name,
        "multi_head_attention",
        options,
        nn.MultiheadAttention(6, 2, batch_first=True),
        [(2, 5, 6), (2, 4, 6), lambda family, given=given: given],
        forward=lambda attention, x, memory, _, hidden=hidden: attention(
            x, memory, memory, key_padding_mask=hidden, need_weights=False
        )[0],
    )

for name, heads, length, memory in (("cross", 2, 5, 7), ("cross_one", 1, 1, 1)):
    options = {"num_heads": heads, "from": ["x0", "x1"]}
    family.layer(
        name,
        "multi_head_attention",
        options,
        nn.MultiheadAttention(6, heads, batch_first=True),
        [(2, length, 6), (2, memory, 6)],
        forward=lambda attention, x, memory: attention(x, memory, memory, need_weights=False)[0],
    )
family.write()
