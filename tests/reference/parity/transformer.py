"""Transformer blocks."""

import torch
from torch import nn
from torch.nn import functional as F

from record import Family

family = Family("transformer")


def causal(length):
    return torch.triu(torch.full((length, length), -torch.inf, dtype=torch.float64), 1)


def encoder(name, features, options, shape):
    torchs = {key: value for key, value in options.items() if key not in ("num_heads", "causal", "eps")}
    torchs["layer_norm_eps"] = options.get("eps", 1e-5)
    module = nn.TransformerEncoderLayer(features, options["num_heads"], batch_first=True, **torchs)
    mask = causal(shape[1]) if options.get("causal") else None
    forward = lambda module, x: module(x, src_mask=mask)
    family.layer(name, "transformer_block", options, module, [shape + (features,)], forward=forward)


def decoder(name, features, options, shapes):
    torchs = {key: value for key, value in options.items() if key not in ("num_heads", "causal", "from")}
    module = nn.TransformerDecoderLayer(features, options["num_heads"], batch_first=True, **torchs)
    mask = causal(shapes[0][1])
    forward = lambda module, x, memory: module(x, memory, tgt_mask=mask)
    inputs = [shape + (features,) for shape in shapes]
    family.layer(name, "transformer_block", options, module, inputs, forward=forward)


class Gated(nn.Module):
    """A pre-norm block with root mean squares and a gated feed-forward part."""

    def __init__(self, features, num_heads, dim_feedforward, activation):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(features, num_heads, bias=False, batch_first=True)
        self.linear1 = nn.Linear(features, 2 * dim_feedforward, bias=False)
        self.linear2 = nn.Linear(dim_feedforward, features, bias=False)
        self.norm1 = nn.RMSNorm(features, eps=1e-3)
        self.norm2 = nn.RMSNorm(features, eps=1e-3)
        self.activation = activation

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.self_attn(y, y, y, attn_mask=causal(x.shape[1]), need_weights=False)[0]
        a, b = self.linear1(self.norm2(x)).chunk(2, -1)
        return x + self.linear2(self.activation(a) * b)


still = {"dropout": 0.0}
encoder("encoder", 6, {"num_heads": 2, "dim_feedforward": 11} | still, (2, 5))
gelu = {"num_heads": 3, "dim_feedforward": 7, "activation": "gelu", "norm_first": True, "causal": True}
encoder("encoder_norm_first", 12, gelu | still, (2, 7))
encoder("encoder_eps", 5, {"num_heads": 1, "dim_feedforward": 1, "eps": 1e-2} | still, (1, 1))
memory = {"from": ["x0", "x1"], "causal": True}
decoder("decoder", 6, {"num_heads": 2, "dim_feedforward": 7} | still | memory, [(2, 5), (2, 3)])
first = {"num_heads": 4, "dim_feedforward": 5, "norm_first": True, "activation": "gelu"}
decoder("decoder_norm_first", 8, first | still | memory, [(1, 3), (1, 7)])
padded = torch.tensor([[0, 0, 0, 1, 1], [0, 1, 1, 1, 1]]).bool()
family.layer(
    "encoder_key_padding_mask",
    "transformer_block",
    {"num_heads": 2, "dim_feedforward": 11, "dropout": 0.0, "key_padding_mask": "x1"},
    nn.TransformerEncoderLayer(6, 2, 11, dropout=0.0, batch_first=True),
    [(2, 5, 6), lambda family: padded.int()],
    forward=lambda module, x, _: module(x, src_key_padding_mask=padded),
)
lengths = {"lengths": "x2", "memory_lengths": "x3", "from": ["x0", "x1"]}
family.layer(
    "decoder_lengths",
    "transformer_block",
    {"num_heads": 2, "dim_feedforward": 7} | still | lengths,
    nn.TransformerDecoderLayer(6, 2, 7, dropout=0.0, batch_first=True),
    [(2, 5, 6), (2, 3, 6), lambda family: torch.tensor([3, 1]), lambda family: torch.tensor([3, 2])],
    forward=lambda module, x, memory, own, others: module(
        x,
        memory,
        tgt_key_padding_mask=padded,
        memory_key_padding_mask=torch.arange(3) >= others[:, None],
    ),
)
for name, activation in (("swiglu", F.silu), ("geglu", F.gelu)):
    options = {"num_heads": 2, "dim_feedforward": 11, "activation": name, "norm": "rms_norm", "eps": 1e-3}
    options |= {"norm_first": True, "bias": False, "causal": True} | still
    family.layer(name, "transformer_block", options, Gated(6, 2, 11, activation), [(2, 5, 6)])
family.write()
