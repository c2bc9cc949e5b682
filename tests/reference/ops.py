"""Values and gradients of single ops for make.py, on tiny inputs.

Inputs are f32; PyTorch computes in f64 from them, and the results are rounded to f32 once.
"""

import math

import torch
from torch.nn import functional as F


class Cases:
    """Gathers tensors `<case>.<name>` and, for each case, the op and its options."""

    def __init__(self):
        self.generator = torch.Generator().manual_seed(15)
        self.tensors = {}
        self.spec = {}

    def normal(self, *shape):
        return torch.randn(*shape, generator=self.generator)

    def add(self, case, op, options, inputs, compute):
        """`compute` maps the f64 inputs, in their order, to the output; the gradients are those
        of Σ out·d_out."""
        exact = {k: v.double().requires_grad_() if v.is_floating_point() else v for k, v in inputs.items()}
        out = compute(*exact.values())
        d_out = self.normal(*out.shape)
        (out * d_out.double()).sum().backward()
        found = dict(inputs) | {"out": out, "d_out": d_out}
        found |= {f"d_{k}": v.grad for k, v in exact.items() if v.grad is not None}
        self.tensors |= {f"{case}.{k}": v for k, v in found.items()}
        self.spec[case] = {"op": op} | options


def elementwise(cases):
    extremes = torch.tensor([-100.0, -30.0, 0.0, 30.0, 100.0])
    x = torch.cat([torch.linspace(-12, 12, 51), extremes]).reshape(7, 8)
    for name, f in (
        ("relu", F.relu),
        ("gelu", F.gelu),
        ("silu", F.silu),
        ("sigmoid", torch.sigmoid),
        ("tanh", torch.tanh),
    ):
        cases.add(name, name, {}, {"x": x}, f)
    tanh = {"approximate": "tanh"}
    cases.add("gelu_tanh", "gelu", tanh, {"x": x}, lambda x: F.gelu(x, **tanh))


def rows(cases):
    cases.add("softmax", "softmax", {}, {"x": 3 * cases.normal(5, 13)}, lambda x: F.softmax(x, -1))
    large = cases.normal(3, 9) * 40 + 80
    cases.add("softmax_large", "softmax", {}, {"x": large}, lambda x: F.softmax(x, -1))
    for case, eps, shape in (("layer_norm", 1e-5, (4, 10)), ("layer_norm_3d", 1e-3, (2, 3, 16))):
        width = shape[-1]
        x = 2 * cases.normal(*shape) + 0.5
        inputs = {"x": x, "weight": cases.normal(width), "bias": cases.normal(width)}
        norm = lambda x, weight, bias: F.layer_norm(x, (width,), weight, bias, eps)
        cases.add(case, "layer_norm", {"eps": eps}, inputs, norm)


def convolutions(cases):
    # case: (batch, channels in, height, width), channels out, kernel, stride, padding, dilation, groups
    shapes = {
        "conv2d_plain": ((2, 3, 6, 7), 4, (3, 3), (1, 1), (0, 0), (1, 1), 1),
        "conv2d_same": ((2, 3, 6, 7), 4, (3, 3), (1, 1), (1, 1), (1, 1), 1),
        "conv2d_1x1": ((2, 5, 4, 4), 6, (1, 1), (1, 1), (0, 0), (1, 1), 1),
        "conv2d_1x1_stride": ((2, 4, 5, 5), 6, (1, 1), (2, 2), (0, 0), (1, 1), 1),
        "conv2d_stride": ((2, 3, 8, 7), 4, (3, 3), (2, 2), (1, 1), (1, 1), 1),
        "conv2d_dilation": ((2, 3, 9, 8), 4, (3, 3), (1, 1), (2, 2), (2, 2), 1),
        "conv2d_groups": ((2, 4, 6, 6), 6, (3, 3), (1, 1), (1, 1), (1, 1), 2),
        "conv2d_depthwise": ((2, 6, 5, 6), 6, (3, 3), (1, 1), (1, 1), (1, 1), 6),
        "conv2d_mixed": ((2, 4, 11, 9), 6, (3, 2), (2, 1), (1, 2), (2, 3), 2),
    }
    for case, (shape, out, kernel, stride, padding, dilation, groups) in shapes.items():
        options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        weight = 0.5 * cases.normal(out, shape[1] // groups, *kernel)
        inputs = {"x": cases.normal(*shape), "weight": weight, "bias": cases.normal(out)}
        conv = lambda x, weight, bias: F.conv2d(x, weight, bias, **options)
        cases.add(case, "conv2d", {"kernel_size": kernel} | options, inputs, conv)


def pools(cases):
    shapes = {
        "plain": ((2, 3, 6, 8), (2, 2), (2, 2), (0, 0)),
        "padding": ((2, 2, 7, 7), (3, 3), (2, 2), (1, 1)),
        "mixed": ((1, 3, 9, 7), (3, 2), (2, 1), (1, 0)),
    }
    for case, (shape, kernel, stride, padding) in shapes.items():
        options = {"kernel_size": kernel, "stride": stride, "padding": padding}
        x = {"x": cases.normal(*shape)}
        cases.add(f"max_pool2d_{case}", "max_pool2d", options, x, lambda x: F.max_pool2d(x, **options))
        for count in (True, False):
            name = f"avg_pool2d_{case}" + ("" if count else "_exclude_pad")
            counted = options | {"count_include_pad": count}
            cases.add(name, "avg_pool2d", counted, x, lambda x: F.avg_pool2d(x, **counted))
    x = {"x": cases.normal(2, 5, 3, 4)}
    cases.add("global_avg_pool", "global_avg_pool", {}, x, lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1))


def losses(cases):
    """`out` is the loss of each row (0 where ignored); `mean` is over the rows that count."""
    for case, smoothing, ignored in (
        ("cross_entropy", 0.0, []),
        ("cross_entropy_smooth", 0.1, []),
        ("cross_entropy_ignore", 0.0, [1, 4]),
        ("cross_entropy_smooth_ignore", 0.2, [0, 5, 6]),
    ):
        logits = 3 * cases.normal(7, 11)
        target = torch.randint(11, (7,), generator=cases.generator)
        target[ignored] = -100
        options = {"label_smoothing": smoothing, "ignore_index": -100}
        loss = lambda x, target, reduction="none": F.cross_entropy(x, target, reduction=reduction, **options)
        cases.add(case, "cross_entropy", options, {"x": logits, "target": target}, loss)
        cases.tensors[f"{case}.mean"] = loss(logits.double(), target, "mean").reshape(1)


def attend(x, heads, causal):
    """Attention of packed `[batch, length, 3·width]` (queries, keys, values), by its definition."""
    batch, length, packed = x.shape
    width = packed // 3
    q, k, v = (t.reshape(batch, length, heads, width // heads).transpose(1, 2) for t in x.split(width, -1))
    scores = q @ k.transpose(-1, -2) / math.sqrt(width // heads)
    if causal:
        scores = scores.masked_fill(torch.triu(torch.ones(length, length, dtype=torch.bool), 1), -math.inf)
    mixed = scores.softmax(-1) @ v
    checked = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    torch.testing.assert_close(mixed, checked)
    return mixed.transpose(1, 2).reshape(batch, length, width)


def attentions(cases):
    for case, shape, heads, causal in (
        ("attention", (2, 6, 24), 2, False),
        ("attention_causal", (2, 6, 24), 2, True),
        ("attention_causal_long", (1, 37, 24), 1, True),
    ):
        options = {"heads": heads, "causal": causal}
        x = {"x": cases.normal(*shape)}
        cases.add(case, "attention", options, x, lambda x: attend(x, **options))


def cases():
    """All tensors, and the options of each case."""
    found = Cases()
    for family in (elementwise, rows, convolutions, pools, losses, attentions):
        family(found)
    return found.tensors, {"cases": found.spec}
