"""Activations with their options, over both sides of every bend."""

import torch
from torch import nn

from record import Family

family = Family("activations")


def wide(f):
    """Values from about -12 to 12, among them large ones and 0."""
    x = f.normal(5, 7, scale=4.0)
    x[0, 0], x[1, 3], x[2, 2], x[3, 1] = 0.0, 30.0, -30.0, 1e-4
    return x


def near(f):
    """Values so small that 1 + x loses them."""
    return f.normal(3, 11, scale=1e-3)


for name, options, module in (
    ("leaky_relu", {}, nn.LeakyReLU()),
    ("leaky_relu", {"negative_slope": 0.3}, nn.LeakyReLU(0.3)),
    ("leaky_relu", {"negative_slope": -1.5}, nn.LeakyReLU(-1.5)),
    ("relu6", {}, nn.ReLU6()),
    ("elu", {}, nn.ELU()),
    ("elu", {"alpha": 0.4}, nn.ELU(0.4)),
    ("selu", {}, nn.SELU()),
    ("celu", {}, nn.CELU()),
    ("celu", {"alpha": 2.5}, nn.CELU(2.5)),
    ("mish", {}, nn.Mish()),
    ("hard_swish", {}, nn.Hardswish()),
    ("hard_sigmoid", {}, nn.Hardsigmoid()),
    ("softplus", {}, nn.Softplus()),
    ("softplus", {"beta": 3.0, "threshold": 6.0}, nn.Softplus(3.0, 6.0)),
    ("softplus", {"beta": 0.5, "threshold": 60.0}, nn.Softplus(0.5, 60.0)),
    ("softsign", {}, nn.Softsign()),
):
    case = "_".join([name, *(str(v).replace(".", "").replace("-", "minus") for v in options.values())])
    family.layer(case, name, options, module, [wide])
    if name in ("elu", "selu", "celu", "softsign", "hard_swish", "mish"):
        family.layer(f"{case}_near", name, options, module, [near])

family.layer("prelu", "prelu", {}, nn.PReLU(), [wide])
family.layer("prelu_channels", "prelu", {"num_parameters": 3, "init": 0.1}, nn.PReLU(3, 0.1), [(2, 3, 5, 2)])
family.layer("prelu_rows", "prelu", {"num_parameters": 7}, nn.PReLU(7), [wide])
family.layer("glu", "glu", {}, nn.GLU(), [(3, 2, 10)])
family.layer("glu_channels", "glu", {"dim": 1}, nn.GLU(1), [(2, 6, 3, 5)])
for name, module in (("softmax", nn.Softmax), ("log_softmax", nn.LogSoftmax)):
    family.layer(name, name, {}, module(-1), [lambda f: f.normal(3, 257, scale=3.0)])
    family.layer(f"{name}_channels", name, {"dim": 1}, module(1), [(2, 5, 3, 7)])
    family.layer(f"{name}_middle", name, {"dim": -2}, module(-2), [(2, 3, 11, 2)])
    family.layer(f"{name}_large", name, {}, module(-1), [lambda f: f.normal(2, 13, scale=40.0)])
family.write()
