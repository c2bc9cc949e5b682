"""Layers that move, cut, reduce or scale."""

import torch
from torch import nn
from torch.nn import functional as F

from record import Family

family = Family("shapes")
layer = family.layer

layer("permute_channels_last", "permute", {"dims": [0, 2, 3, 1]}, lambda x: x.permute(0, 2, 3, 1), [(2, 3, 5, 7)])
layer("permute_far", "permute", {"dims": [0, -1, 1, 2]}, lambda x: x.permute(0, 3, 1, 2), [(3, 2, 5, 3)])
layer("transpose", "transpose", {"dim0": 1, "dim1": 2}, lambda x: x.transpose(1, 2), [(2, 37, 33)])
layer("transpose_last", "transpose", {"dim0": -1, "dim1": 1}, lambda x: x.transpose(1, -1), [(2, 5, 3, 7)])
layer("slice", "slice", {"dim": 1, "start": 2, "end": 5}, lambda x: x[:, 2:5], [(2, 7, 3)])
layer("slice_last", "slice", {"dim": -1, "start": -1}, lambda x: x[..., -1:], [(3, 2, 5)])
layer("slice_most", "slice", {"dim": 2, "end": -2}, lambda x: x[:, :, :-2], [(1, 3, 7, 5)])
layer("split", "split", {"split_size": 3, "index": 1, "dim": 1}, lambda x: x.split(3, 1)[1], [(2, 8, 3)])
layer("split_rest", "split", {"split_size": 3, "index": 2, "dim": 1}, lambda x: x.split(3, 1)[2], [(2, 8, 3)])
sizes = {"split_size": [2, 5, 1], "index": 1, "dim": -1}
layer("split_sizes", "split", sizes, lambda x: x.split([2, 5, 1], -1)[1], [(3, 2, 8)])
layer("flatten", "flatten", {}, lambda x: x.flatten(1), [(2, 3, 5, 7)])
layer("flatten_some", "flatten", {"start_dim": 2}, lambda x: x.flatten(2), [(2, 3, 5, 7)])
layer("flatten_middle", "flatten", {"start_dim": 1, "end_dim": -2}, lambda x: x.flatten(1, -2), [(2, 3, 5, 7)])
layer("reshape", "reshape", {"shape": [5, -1]}, lambda x: x.reshape(2, 5, -1), [(2, 3, 5, 7)])

distinct = [lambda f: f.distinct(2, 3, 5, 7)]
for name, function in (("mean", torch.mean), ("sum", torch.sum), ("max", torch.amax)):
    layer(f"{name}_one", name, {"dims": [1]}, lambda x: function(x, 1), distinct)
    layer(f"{name}_last", name, {"dims": -1, "keepdim": True}, lambda x: function(x, -1, keepdim=True), distinct)
    layer(f"{name}_images", name, {"dims": [2, 3]}, lambda x: function(x, (2, 3)), distinct)
    layer(f"{name}_apart", name, {"dims": [1, 3], "keepdim": True}, lambda x: function(x, (1, 3), keepdim=True), distinct)
layer("max_row", "max", {"dims": [1, 2]}, lambda x: x.amax((1, 2)), [lambda f: f.distinct(2, 17, 19)])

layer("l2_normalize", "l2_normalize", {}, lambda x: F.normalize(x), [(3, 7)])
layer("l2_normalize_last", "l2_normalize", {"dim": -1, "eps": 0.5}, lambda x: F.normalize(x, dim=-1, eps=0.5), [(2, 3, 5)])


class Scale(nn.Module):
    def __init__(self, channels, value, rank):
        super().__init__()
        self.gamma = nn.Parameter(torch.full((channels,), value))
        self.rank = rank

    def forward(self, x):
        return x * self.gamma.reshape(-1, *[1] * self.rank)


layer("scale", "scale", {}, Scale(7, 1e-5, 0), [(2, 3, 7)])
layer("scale_images", "scale", {"init_value": 1.0}, Scale(3, 1.0, 2), [(2, 3, 5, 4)])
layer("scale_channels", "scale", {"init_value": 0.5, "dim": 1}, Scale(5, 0.5, 1), [(3, 5, 2)])


class SqueezeExcite(nn.Module):
    """As torchvision's SqueezeExcitation."""

    def __init__(self, channels, squeezed, activation, gate):
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)
        self.activation, self.gate = activation, gate

    def forward(self, x):
        factors = self.activation(self.fc1(F.adaptive_avg_pool2d(x, 1)))
        return x * self.gate(self.fc2(factors))


module = SqueezeExcite(6, 3, F.relu, torch.sigmoid)
layer("squeeze_excite", "squeeze_excite", {"squeeze_channels": 3}, module, [(2, 6, 5, 3)])
options = {"squeeze_channels": 2, "activation": "silu", "scale_activation": "hard_sigmoid"}
layer("squeeze_excite_silu", "squeeze_excite", options, SqueezeExcite(5, 2, F.silu, F.hardsigmoid), [(3, 5, 2, 7)])

for name, options, shape in (
    ("dropout2d", {"p": 0.3}, (2, 3, 5, 4)),
    ("stochastic_depth", {"p": 0.2}, (3, 7)),
):
    layer(f"{name}_eval", name, options, lambda x: x * 1.0, [shape], mode="eval")
family.write()
