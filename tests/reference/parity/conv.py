"""Convolutions, plain and transposed, in one to three dimensions."""

from torch import nn
from torch.nn import functional as F

from record import Family

family = Family("conv")


def tupled(options):
    return {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}


def case(name, layer, kind, shape, **options):
    family.layer(name, layer, options, kind(shape[1], **tupled(options)), [shape])


def explicit(name, layer, kind, shape, padding, **options):
    """Two paddings for each axis, the first axis first, which PyTorch's layers lack."""
    flat = [side for axis in reversed(range(len(padding) // 2)) for side in padding[2 * axis : 2 * axis + 2]]
    module = kind(shape[1], **tupled(options))
    forward = lambda module, x: module(F.pad(x, flat))
    family.layer(name, layer, options | {"padding": padding}, module, [shape], forward=forward)


def conv1d():
    case("conv1d_one", "conv1d", nn.Conv1d, (1, 1, 1), out_channels=1, kernel_size=1)
    case("conv1d", "conv1d", nn.Conv1d, (2, 3, 11), out_channels=5, kernel_size=3)
    case("conv1d_stride", "conv1d", nn.Conv1d, (2, 2, 13), out_channels=3, kernel_size=5, stride=2, padding=2)
    case("conv1d_same", "conv1d", nn.Conv1d, (1, 3, 7), out_channels=2, kernel_size=4, padding="same", dilation=2)
    groups = {"out_channels": 6, "kernel_size": 3, "groups": 2, "bias": False}
    case("conv1d_groups", "conv1d", nn.Conv1d, (2, 4, 9), **groups)
    depthwise = {"out_channels": 10, "kernel_size": 3, "padding": 1, "groups": 5}
    case("conv1d_depthwise", "conv1d", nn.Conv1d, (3, 5, 17), **depthwise)
    explicit("conv1d_causal", "conv1d", nn.Conv1d, (2, 3, 11), [4, 0], out_channels=4, kernel_size=3, dilation=2)
    for mode in ("reflect", "replicate", "circular"):
        options = {"out_channels": 3, "kernel_size": 5, "padding": 2, "padding_mode": mode}
        case(f"conv1d_{mode}", "conv1d", nn.Conv1d, (2, 2, 7), **options)


def conv2d():
    for mode in ("reflect", "replicate", "circular"):
        options = {"out_channels": 3, "kernel_size": 3, "padding": [1, 2], "padding_mode": mode}
        case(f"conv2d_{mode}", "conv2d", nn.Conv2d, (2, 2, 5, 7), **options)
    same = {"out_channels": 2, "kernel_size": [4, 3], "padding": "same", "padding_mode": "reflect", "dilation": 2}
    case("conv2d_reflect_same", "conv2d", nn.Conv2d, (1, 3, 7, 8), **same)
    strided = {"out_channels": 3, "kernel_size": 3, "stride": [2, 1], "dilation": [1, 2]}
    explicit("conv2d_explicit", "conv2d", nn.Conv2d, (2, 3, 7, 8), [0, 2, 3, 1], **strided)
    depthwise = {"kernel_size": 3, "padding": 1}
    for name, shape, options in (
        ("", (2, 5, 7, 6), {"out_channels": 5, "groups": 5}),
        ("_multiplier", (2, 3, 5, 7), {"out_channels": 9, "groups": 3, "bias": False}),
        ("_stride", (2, 4, 11, 9), {"out_channels": 4, "groups": 4, "stride": 2}),
        ("_dilation", (1, 4, 9, 9), {"out_channels": 8, "groups": 4, "dilation": [2, 1], "stride": [1, 3]}),
        ("_wide", (2, 2, 9, 13), {"out_channels": 2, "groups": 2, "kernel_size": [7, 5], "padding": [3, 2]}),
    ):
        case(f"conv2d_depthwise{name}", "conv2d", nn.Conv2d, shape, **(depthwise | options))


def conv3d():
    case("conv3d_one", "conv3d", nn.Conv3d, (1, 1, 1, 1, 1), out_channels=1, kernel_size=1)
    case("conv3d", "conv3d", nn.Conv3d, (2, 2, 4, 5, 3), out_channels=3, kernel_size=[3, 2, 2])
    same = {"out_channels": 2, "kernel_size": 3, "padding": "same"}
    case("conv3d_same", "conv3d", nn.Conv3d, (1, 3, 3, 5, 4), **same)
    mixed = {"kernel_size": [2, 3, 1], "stride": [2, 1, 3], "padding": [1, 2, 0], "dilation": [2, 1, 1]}
    case("conv3d_mixed", "conv3d", nn.Conv3d, (2, 2, 5, 4, 7), out_channels=3, bias=False, **mixed)
    case("conv3d_groups", "conv3d", nn.Conv3d, (1, 4, 3, 3, 5), out_channels=6, kernel_size=2, groups=2)
    depthwise = {"out_channels": 3, "kernel_size": [1, 3, 3], "groups": 3, "padding": [0, 1, 1]}
    case("conv3d_depthwise", "conv3d", nn.Conv3d, (2, 3, 2, 4, 3), **depthwise)
    circular = {"out_channels": 2, "kernel_size": 3, "padding": 1, "padding_mode": "circular"}
    case("conv3d_circular", "conv3d", nn.Conv3d, (1, 2, 3, 4, 3), **circular)
    explicit("conv3d_explicit", "conv3d", nn.Conv3d, (1, 2, 3, 2, 4), [2, 0, 1, 0, 0, 1], out_channels=2, kernel_size=2)


def transposed():
    one, two = ("conv_transpose1d", nn.ConvTranspose1d), ("conv_transpose2d", nn.ConvTranspose2d)
    case("conv_transpose1d_one", *one, (1, 1, 1), out_channels=1, kernel_size=1)
    case("conv_transpose1d", *one, (2, 3, 7), out_channels=5, kernel_size=4)
    doubled = {"out_channels": 2, "kernel_size": 4, "stride": 2, "padding": 1}
    case("conv_transpose1d_double", *one, (2, 3, 5), **doubled)
    mixed = {"out_channels": 6, "kernel_size": 3, "stride": 3, "padding": 2, "output_padding": 2, "dilation": 2}
    case("conv_transpose1d_mixed", *one, (1, 4, 5), groups=2, bias=False, **mixed)
    case("conv_transpose2d_one", *two, (1, 1, 1, 1), out_channels=1, kernel_size=1)
    case("conv_transpose2d", *two, (2, 3, 4, 5), out_channels=2, kernel_size=3)
    case("conv_transpose2d_double", *two, (2, 3, 4, 3), **doubled)
    odd = {"out_channels": 3, "kernel_size": [3, 2], "stride": [2, 3], "padding": [1, 0], "output_padding": [1, 2]}
    case("conv_transpose2d_odd", *two, (1, 2, 5, 3), **odd)
    case("conv_transpose2d_dilation", *two, (1, 2, 4, 4), out_channels=2, kernel_size=3, dilation=2, padding=2)
    case("conv_transpose2d_groups", *two, (2, 4, 3, 5), out_channels=6, kernel_size=3, groups=2, stride=2, bias=False)
    depthwise = {"out_channels": 8, "kernel_size": 3, "groups": 4, "stride": 2, "padding": 1, "output_padding": 1}
    case("conv_transpose2d_depthwise", *two, (2, 4, 3, 4), **depthwise)


for group in (conv1d, conv2d, conv3d, transposed):
    group()
family.write()
