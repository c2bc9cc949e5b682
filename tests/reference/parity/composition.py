"""Layers put together: skips, branches, shared weights, several inputs and outputs."""

import torch
from torch import nn

from record import Family

family = Family("composition")


class Net(nn.Module):
    """Named layers and a function of them and the inputs."""

    def __init__(self, layers, forward):
        super().__init__()
        self.layers = nn.ModuleDict(layers)
        self.run = forward

    def forward(self, *inputs):
        return self.run(self.layers, *inputs)


def case(name, layer, options, model, layers, forward, inputs, rename={}, **more):
    """The names of parameters are those of `layers`, with `.` for `_` where `rename` says so."""
    net = Net(layers, forward)
    names = {}
    for key, _ in [*net.named_parameters(), *net.named_buffers()]:
        layer_name, _, rest = key.removeprefix("layers.").partition(".")
        names[key] = f"{rename.get(layer_name, layer_name)}.{rest}"
    family.case(name, layer, options, model, net, inputs, rename=names, **more)


def conv(ins, outs, kernel, **options):
    return nn.Conv2d(ins, outs, kernel, padding=kernel // 2, **options)


case(
    "residual", "residual", "shortcut identity",
    """
    layers:
      - residual:
          name: r
          layers: [{linear: {name: a, out_features: 11}}, tanh, {linear: {name: b, out_features: 7}}]
    """,
    {"a": nn.Linear(7, 11), "b": nn.Linear(11, 7)},
    lambda l, x: x + l["b"](torch.tanh(l["a"](x))),
    [(3, 7)], {"a": "r.a", "b": "r.b"},
)
case(
    "residual_projection", "residual", "shortcut projection",
    """
    layers:
      - residual:
          name: r
          shortcut: projection
          layers: [{conv2d: {name: a, out_channels: 5, kernel_size: 3, stride: 2, padding: 1}}]
    """,
    {"a": conv(3, 5, 3, stride=2), "down": nn.Conv2d(3, 5, 1, stride=2, bias=False), "norm": nn.BatchNorm2d(5)},
    lambda l, x: l["a"](x) + l["norm"](l["down"](x)),
    [(2, 3, 7, 6)], {"a": "r.a", "down": "r.downsample.0", "norm": "r.downsample.1"},
)
for merge, join in (
    ("add", lambda a, b: a + b),
    ("multiply", lambda a, b: a * b),
    ("concat", lambda a, b: torch.cat([a, b], 1)),
):
    case(
        f"parallel_{merge}", "parallel", f"merge {merge}",
        f"""
        layers:
          - parallel:
              name: p
              merge: {merge}
              branches:
                - [{{conv2d: {{name: a, out_channels: 3, kernel_size: 3, padding: 1}}}}]
                - [{{conv2d: {{name: b, out_channels: 3, kernel_size: 1}}}}, sigmoid]
        """,
        {"a": conv(2, 3, 3), "b": nn.Conv2d(2, 3, 1)},
        lambda l, x: join(l["a"](x), torch.sigmoid(l["b"](x))),
        [(2, 2, 5, 3)], {"a": "p.0.a", "b": "p.1.b"},
    )
case(
    "concat_dim", "concat", "dim 1",
    """
    layers:
      - linear: {name: a, out_features: 5}
      - concat: {name: both, from: [a, x0], dim: -2}
      - tanh
    """,
    {"a": nn.Linear(5, 5)},
    lambda l, x: torch.tanh(torch.cat([l["a"](x), x], 1)),
    [(2, 3, 5)],
)
case(
    "parallel_dim", "parallel", "merge concat, dim 1",
    """
    layers:
      - parallel:
          merge: concat
          dim: 1
          branches: [[tanh], [{slice: {dim: 1, end: 1}}, sigmoid]]
    """,
    {},
    lambda l, x: torch.cat([torch.tanh(x), torch.sigmoid(x[:, :1])], 1),
    [(2, 3, 5)],
)
case(
    "skip", "concat", "skips by name",
    """
    layers:
      - conv2d: {name: top, out_channels: 3, kernel_size: 3, padding: 1}
      - max_pool2d: {kernel_size: 2}
      - conv2d: {name: low, out_channels: 5, kernel_size: 3, padding: 1}
      - mean: {name: all, dims: [2, 3], keepdim: true}
      - multiply: {name: gated, from: [low, low]}
      - conv2d: {name: side, from: top, out_channels: 5, kernel_size: 3, stride: 2, padding: 1}
      - concat: {name: joined, from: [gated, side, low]}
      - conv2d: {name: end, out_channels: 2, kernel_size: 1}
    outputs: [end, all]
    """,
    {"top": conv(2, 3, 3), "low": conv(3, 5, 3), "side": conv(3, 5, 3, stride=2), "end": nn.Conv2d(15, 2, 1)},
    lambda l, x: (
        lambda top: (
            lambda low: [l["end"](torch.cat([low * low, l["side"](top), low], 1)), low.mean((2, 3), keepdim=True)]
        )(l["low"](nn.functional.max_pool2d(top, 2)))
    )(l["top"](x)),
    [lambda f: f.distinct(2, 2, 6, 8)],
)
case(
    "share", "linear", "share",
    """
    layers:
      - linear: {name: turn, out_features: 5}
      - tanh
      - linear: {share: turn, out_features: 5}
      - tanh
      - linear: {share: turn, out_features: 5}
    """,
    {"turn": nn.Linear(5, 5)},
    lambda l, x: l["turn"](torch.tanh(l["turn"](torch.tanh(l["turn"](x))))),
    [(3, 5)],
)
case(
    "share_embedding", "linear", "share of an embedding",
    """
    layers:
      - embedding: {name: words, num_embeddings: 11, embedding_dim: 3}
      - tanh
      - linear: {share: words, out_features: 11, bias: false}
    """,
    {"words": nn.Embedding(11, 3)},
    lambda l, x: torch.tanh(l["words"](x)) @ l["words"].weight.T,
    [lambda f: f.ids(11, 2, 7)],
)
case(
    "inputs", "add", "two inputs",
    """
    layers:
      - linear: {name: a, from: x0, out_features: 3}
      - linear: {name: b, from: x1, out_features: 3}
      - add: {name: sum, from: [a, b]}
      - relu
    """,
    {"a": nn.Linear(5, 3), "b": nn.Linear(2, 3)},
    lambda l, x, y: torch.relu(l["a"](x) + l["b"](y)),
    [(4, 5), (4, 2)],
)
case(
    "repeat", "repeat", "times 3",
    """
    blocks:
      unit: {params: {size: int}, layers: [{linear: {out_features: $size}}, {layer_norm: {}}, gelu]}
    layers:
      - repeat: {name: body, times: 3, layers: [{unit: {size: 5}}]}
    """,
    {f"{kind}{i}": module for i in range(3) for kind, module in (("linear", nn.Linear(5, 5)), ("norm", nn.LayerNorm(5)))},
    lambda l, x: (
        lambda step: step(step(step(x, 0), 1), 2)
    )(lambda x, i: nn.functional.gelu(l[f"norm{i}"](l[f"linear{i}"](x)))),
    [(3, 5)],
    {f"{kind}{i}": f"body.{i}.{place}" for i in range(3) for kind, place in (("linear", 0), ("norm", 1))},
)
frozen = nn.Linear(5, 7).requires_grad_(False)
case(
    "freeze", "linear", "freeze",
    """
    freeze: [body.*]
    layers: [{linear: {name: body, out_features: 7}}, tanh, {linear: {name: head, out_features: 3}}]
    """,
    {"body": frozen, "head": nn.Linear(7, 3)},
    lambda l, x: l["head"](torch.tanh(l["body"](x))),
    [(3, 5)],
)
family.write()
