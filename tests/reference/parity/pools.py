"""Pooling with its options, over images and sequences."""

import torch
from torch import nn
from torch.nn import functional as F

from record import Family

family = Family("pools")


def distinct(*shape):
    return [lambda f: f.distinct(*shape)]


def positive(*shape):
    return [lambda f: f.normal(*shape).abs() + 0.1]


for case, options, shape in (
    ("plain", {"kernel_size": 3}, (2, 3, 13)),
    ("padded", {"kernel_size": 5, "stride": 2, "padding": 2}, (2, 2, 11)),
    ("ceil", {"kernel_size": 2, "stride": 3, "ceil_mode": True}, (1, 3, 12)),
):
    family.layer(f"max_pool1d_{case}", "max_pool1d", options, nn.MaxPool1d(**options), distinct(*shape))
    family.layer(f"avg_pool1d_{case}", "avg_pool1d", options, nn.AvgPool1d(**options), distinct(*shape))
for case, options, shape in (
    ("ceil", {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}, (2, 3, 8, 7)),
    ("ceil_mixed", {"kernel_size": [2, 3], "stride": [3, 2], "padding": [1, 0], "ceil_mode": True}, (1, 2, 9, 10)),
    ("ceil_beyond", {"kernel_size": 2, "stride": 3, "padding": 1, "ceil_mode": True}, (1, 2, 5, 6)),
    ("one", {"kernel_size": 1}, (1, 1, 1, 1)),
):
    family.layer(f"max_pool2d_{case}", "max_pool2d", options, nn.MaxPool2d(**options), distinct(*shape))
    family.layer(f"avg_pool2d_{case}", "avg_pool2d", options, nn.AvgPool2d(**options), distinct(*shape))
    bare = options | {"count_include_pad": False}
    family.layer(f"avg_pool2d_{case}_bare", "avg_pool2d", bare, nn.AvgPool2d(**bare), distinct(*shape))
for case, options, shape in (
    ("dilated", {"kernel_size": 3, "dilation": 2}, (2, 3, 9, 8)),
    ("dilated_mixed", {"kernel_size": [2, 3], "stride": [2, 1], "padding": [1, 1], "dilation": [3, 2]}, (1, 2, 8, 7)),
    ("dilated_ceil", {"kernel_size": 2, "stride": 3, "dilation": 3, "ceil_mode": True}, (1, 2, 9, 12)),
):
    family.layer(f"max_pool2d_{case}", "max_pool2d", options, nn.MaxPool2d(**options), distinct(*shape))
options = {"kernel_size": 3, "stride": 1, "padding": 1, "dilation": 4}
family.layer("max_pool1d_dilated", "max_pool1d", options, nn.MaxPool1d(**options), distinct(2, 3, 13))
for p in (1, 2, 3, 4):
    options = {"norm_type": p, "kernel_size": 3, "stride": 2}
    family.layer(f"lp_pool2d_{p}", "lp_pool2d", options, nn.LPPool2d(**options), positive(2, 3, 8, 7))
options = {"norm_type": 2, "kernel_size": 3}
family.layer("lp_pool1d", "lp_pool1d", options, nn.LPPool1d(**options), [(2, 3, 11)])
options = {"norm_type": 2, "kernel_size": 2, "stride": 3, "ceil_mode": True}
family.layer("lp_pool1d_ceil", "lp_pool1d", options, nn.LPPool1d(**options), [(1, 2, 13)])
for case, size, shape in (
    ("one", 1, (2, 3, 5, 7)),
    ("some", 3, (2, 2, 11, 7)),
    ("mixed", [4, 2], (1, 3, 9, 13)),
    ("more", [7, 3], (1, 2, 3, 5)),
):
    options = {"output_size": size}
    size = tuple(size) if isinstance(size, list) else size
    for kind, module in (("avg", nn.AdaptiveAvgPool2d), ("max", nn.AdaptiveMaxPool2d)):
        name = f"adaptive_{kind}_pool2d"
        family.layer(f"{name}_{case}", name, options, module(size), distinct(*shape))
for case, size, length in (("one", 1, 13), ("some", 5, 17)):
    for kind, module in (("avg", nn.AdaptiveAvgPool1d), ("max", nn.AdaptiveMaxPool1d)):
        name = f"adaptive_{kind}_pool1d"
        family.layer(f"{name}_{case}", name, {"output_size": size}, module(size), distinct(2, 3, length))
for rank, shape in ((1, (2, 3, 13)), (2, (2, 5, 3, 7)), (3, (1, 3, 2, 3, 5))):
    mean, most = lambda x: x.flatten(2).mean(2), lambda x: x.flatten(2).amax(2)
    family.layer(f"global_avg_pool_{rank}d", "global_avg_pool", {}, mean, distinct(*shape))
    family.layer(f"global_max_pool_{rank}d", "global_max_pool", {}, most, distinct(*shape))
family.layer("global_max_pool_long", "global_max_pool", {}, lambda x: x.flatten(2).amax(2), distinct(1, 3, 17, 31))
family.write()
