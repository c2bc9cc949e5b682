"""The layers that every net is made of."""

import torch
from torch import nn
from torch.nn import functional as F

from record import Family

family = Family("basic")


def linears():
    family.layer("linear", "linear", {"out_features": 7}, nn.Linear(5, 7), [(3, 5)])
    family.layer("linear_one", "linear", {"out_features": 1}, nn.Linear(1, 1), [(1, 1)])
    bare = {"out_features": 13, "bias": False}
    family.layer("linear_no_bias_3d", "linear", bare, nn.Linear(11, 13, bias=False), [(2, 3, 11)])


def convolutions():
    def case(name, channels, options, shape):
        torchs = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
        family.layer(name, "conv2d", options, nn.Conv2d(channels, **torchs), [shape])

    case("conv2d", 3, {"out_channels": 5, "kernel_size": 3, "padding": 1}, (2, 3, 7, 6))
    case("conv2d_same", 2, {"out_channels": 3, "kernel_size": 5, "padding": "same"}, (1, 2, 7, 5))
    strided = {"out_channels": 4, "kernel_size": [3, 2], "stride": [2, 1], "padding": [1, 2], "bias": False}
    case("conv2d_stride", 3, strided, (2, 3, 9, 7))
    grouped = {"out_channels": 6, "kernel_size": 3, "dilation": 2, "padding": 2, "groups": 2}
    case("conv2d_groups", 4, grouped, (2, 4, 7, 7))
    case("conv2d_one", 1, {"out_channels": 1, "kernel_size": 1}, (1, 1, 1, 1))


def norms():
    family.layer("layer_norm", "layer_norm", {}, nn.LayerNorm(13), [(3, 5, 13)])
    family.layer("layer_norm_eps", "layer_norm", {"eps": 1e-2}, nn.LayerNorm(7, eps=1e-2), [(4, 7)])
    for mode in ("train", "eval"):
        options = {"eps": 1e-3, "momentum": 0.3}
        family.layer(f"batch_norm_{mode}", "batch_norm", {}, nn.BatchNorm2d(3), [(2, 3, 5, 7)], mode=mode)
        family.layer(
            f"batch_norm_2d_{mode}", "batch_norm", options, nn.BatchNorm1d(5, **options), [(7, 5)], mode=mode
        )


def activations():
    for name, function in (
        ("relu", F.relu),
        ("gelu", F.gelu),
        ("tanh", torch.tanh),
        ("sigmoid", torch.sigmoid),
        ("silu", F.silu),
    ):
        family.layer(name, name, {}, function, [lambda f: f.normal(3, 37, scale=3.0)])
    tanh = {"approximate": "tanh"}
    family.layer("gelu_tanh", "gelu", tanh, lambda x: F.gelu(x, **tanh), [lambda f: f.normal(3, 37, scale=3.0)])
    family.layer("softmax", "softmax", {}, lambda x: F.softmax(x, -1), [(3, 2, 17)])
    family.layer("softmax_one", "softmax", {}, lambda x: F.softmax(x, -1), [(2, 1)])
    family.layer("dropout_eval", "dropout", {"p": 0.4}, nn.Dropout(0.4), [(3, 7)], mode="eval")


def pools():
    for name, options, shape in (
        ("halves", {"kernel_size": 2}, (2, 3, 6, 8)),
        ("padded", {"kernel_size": 3, "stride": 2, "padding": 1}, (2, 2, 7, 7)),
        ("mixed", {"kernel_size": [3, 2], "stride": [2, 1], "padding": [1, 0]}, (1, 3, 9, 7)),
    ):
        images = [lambda f: f.distinct(*shape)]
        family.layer(f"max_pool2d_{name}", "max_pool2d", options, lambda x: F.max_pool2d(x, **options), images)
        family.layer(f"avg_pool2d_{name}", "avg_pool2d", options, lambda x: F.avg_pool2d(x, **options), images)
    bare = {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False}
    family.layer("avg_pool2d_bare", "avg_pool2d", bare, lambda x: F.avg_pool2d(x, **bare), [(2, 2, 7, 7)])
    family.layer("global_avg_pool", "global_avg_pool", {}, lambda x: x.mean((2, 3)), [(2, 5, 3, 4)])


def sequences():
    ids = [lambda f: f.ids(11, 3, 5)]
    options = {"num_embeddings": 11, "embedding_dim": 7}
    family.layer("embedding", "embedding", options, nn.Embedding(11, 7), ids)
    for name, length, width, heads, causal in (("", 5, 12, 3, False), ("_causal", 17, 8, 2, True)):
        mask = torch.triu(torch.full((length, length), -torch.inf, dtype=torch.float64), 1) if causal else None
        family.layer(
            f"multi_head_attention{name}",
            "multi_head_attention",
            {"num_heads": heads} | ({"causal": True} if causal else {}),
            nn.MultiheadAttention(width, heads, batch_first=True),
            [(2, length, width)],
            forward=lambda attention, x: attention(x, x, x, attn_mask=mask, need_weights=False)[0],
        )


for group in (linears, convolutions, norms, activations, pools, sequences):
    group()
family.write()
