"""What moves, adds or cuts places: padding, resizing, patches; tables of vectors, bilinear forms."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from record import Family

family = Family("spatial")


def pads():
    for mode in ("constant", "reflect", "replicate", "circular"):
        for name, shape, padding in (
            ("1d", (2, 3, 7), [3, 1]),
            ("2d", (2, 3, 5, 4), [2, 3, 4, 0]),
            ("3d", (1, 2, 3, 4, 5), [0, 1, 2, 1, 2, 2]),
        ):
            options = {"padding": padding} | ({} if mode == "constant" else {"mode": mode})
            pad = lambda x, padding=padding, mode=mode: F.pad(x, padding, mode=mode)
            family.layer(f"pad_{mode}_{name}", "pad", options, pad, [shape])
    value = {"padding": [1, 2], "value": -1.5}
    family.layer("pad_value", "pad", value, lambda x: F.pad(x, [1, 2], value=-1.5), [(3, 1)])
    crop = {"cropping": [1, 2, 0, 3]}
    family.layer("crop", "crop", crop, lambda x: F.pad(x, [-1, -2, 0, -3]), [(2, 3, 5, 7)])
    crop = {"cropping": [2, 1]}
    family.layer("crop_1d", "crop", crop, lambda x: F.pad(x, [-2, -1]), [(5, 4)])


def sizes():
    for name, shape, options in (
        ("double", (2, 3, 4, 5), {"scale_factor": 2}),
        ("mixed", (1, 2, 3, 5), {"scale_factor": [3, 2]}),
        ("primes", (1, 2, 5, 3), {"size": [7, 11]}),
        ("down", (2, 1, 7, 11), {"size": [3, 5]}),
        ("half", (1, 2, 6, 4), {"scale_factor": 0.5}),
        ("one", (1, 1, 1, 1), {"size": 3}),
        ("to_one", (2, 2, 3, 5), {"size": 1}),
    ):
        torchs = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
        for mode, more in (
            ("nearest", {}),
            ("bilinear", {"mode": "bilinear"}),
            ("corners", {"mode": "bilinear", "align_corners": True}),
        ):
            resize = lambda x, more=more: F.interpolate(x, **torchs, **more)
            family.layer(f"upsample_{mode}_{name}", "upsample", options | more, resize, [shape])
    for name, f, shape in (("", 2, (2, 12, 3, 5)), ("_3", 3, (1, 9, 2, 1)), ("_one", 1, (1, 2, 3, 2))):
        shuffle = {"upscale_factor": f}
        family.layer(f"pixel_shuffle{name}", "pixel_shuffle", shuffle, nn.PixelShuffle(f), [shape])
        batch, channels, height, width = shape
        folded = (batch, channels // f**2 + 1, height * f, width * f)
        unshuffle = {"downscale_factor": f}
        family.layer(f"pixel_unshuffle{name}", "pixel_unshuffle", unshuffle, nn.PixelUnshuffle(f), [folded])


class ClassToken(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, 1, features))

    def forward(self, x):
        return torch.cat([self.weight.expand(len(x), -1, -1), x], 1)


def sinusoids(length, features):
    """As PyTorch's tutorial on transformers makes them, for odd numbers of features too."""
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    frequencies = torch.exp(torch.arange(0, features, 2, dtype=torch.float64) * (-math.log(10000.0) / features))
    table = torch.zeros(length, features, dtype=torch.float64)
    table[:, 0::2] = torch.sin(position * frequencies)
    table[:, 1::2] = torch.cos(position * frequencies)[:, : features // 2]
    return table


def tokens():
    for name, channels, size, patch, more in (
        ("", 3, (8, 12), 4, {}),
        ("_no_bias", 2, (6, 5), [2, 5], {"bias": False}),
        ("_one", 1, (1, 1), 1, {}),
    ):
        options = {"patch_size": patch, "embed_dim": 7} | more
        kernel = tuple(patch) if isinstance(patch, list) else patch
        embed = nn.Conv2d(channels, 7, kernel, stride=kernel, **more)
        forward = lambda embed, x: embed(x).flatten(2).transpose(1, 2)
        shape = (2, channels, *size)
        family.layer(f"patch_embedding{name}", "patch_embedding", options, embed, [shape], forward=forward)
    family.layer("class_token", "class_token", {}, ClassToken(5), [(3, 7, 5)])
    family.layer("class_token_one", "class_token", {}, ClassToken(1), [(1, 1, 1)])
    for length, features in ((7, 6), (11, 5), (1, 1)):
        table = sinusoids(length, features)
        options = {"kind": "sinusoidal"}
        add = lambda x, table=table: x + table
        name = f"positional_embedding_sinusoidal_{length}x{features}"
        family.layer(name, "positional_embedding", options, add, [(2, length, features)])
    options = {"num_embeddings": 5, "embedding_dim": 3, "padding_idx": 2}
    ids = [lambda f: f.ids(5, 4, 7)]
    family.layer("embedding_padding", "embedding", options, nn.Embedding(5, 3, padding_idx=2), ids)


def forms():
    for name, shape, sizes, more in (
        ("", (3,), (5, 7, 4), {}),
        ("_no_bias_3d", (2, 3), (3, 2, 5), {"bias": False}),
        ("_one", (1,), (1, 1, 1), {}),
    ):
        left, right, out = sizes
        options = {"from": ["x0", "x1"], "out_features": out} | more
        inputs = [(*shape, left), (*shape, right)]
        family.layer(f"bilinear{name}", "bilinear", options, nn.Bilinear(left, right, out, **more), inputs)


for group in (pads, sizes, tokens, forms):
    group()


def pairs(x, offset):
    rows, columns = torch.tril_indices(x.shape[1], x.shape[1], offset)
    return torch.bmm(x, x.transpose(1, 2))[:, rows, columns]


for name, shape in (("", (3, 5, 7)), ("_two", (2, 2, 1)), ("_many", (2, 27, 16))):
    family.layer(f"dot_interaction{name}", "dot_interaction", {}, lambda x: pairs(x, -1), [shape])
own = {"self_interaction": True}
family.layer("dot_interaction_self", "dot_interaction", own, lambda x: pairs(x, 0), [(3, 4, 5)])
family.write()
