"""Normalisation with its options, over inputs of several ranks."""

from torch import nn

from record import Family

family = Family("norms")


def affine(flag):
    return {} if flag else {"elementwise_affine": False}


for flag in (True, False):
    end = "" if flag else "_plain"
    family.layer(
        f"layer_norm{end}", "layer_norm", affine(flag), nn.LayerNorm(11, elementwise_affine=flag), [(3, 2, 11)]
    )
    family.layer(f"rms_norm{end}", "rms_norm", affine(flag), nn.RMSNorm(13, elementwise_affine=flag), [(5, 13)])
family.layer("layer_norm_no_bias", "layer_norm", {"bias": False}, nn.LayerNorm(7, bias=False), [(4, 7)])
family.layer("rms_norm_eps", "rms_norm", {"eps": 1e-3}, nn.RMSNorm(257, eps=1e-3), [(2, 3, 257)])
family.layer("rms_norm_one", "rms_norm", {"eps": 0.5}, nn.RMSNorm(1, eps=0.5), [(3, 1)])

for groups, channels, shape in ((2, 6, (5, 7)), (1, 3, (4, 5)), (5, 5, (3, 3)), (3, 6, (11,)), (2, 10, ())):
    case = f"group_norm_{groups}_of_{channels}_{len(shape)}d"
    module = nn.GroupNorm(groups, channels)
    family.layer(case, "group_norm", {"num_groups": groups}, module, [(2, channels, *shape)])
options = {"num_groups": 2, "eps": 1e-2, "affine": False}
family.layer("group_norm_plain", "group_norm", options, nn.GroupNorm(2, 4, 1e-2, False), [(3, 4, 17)])

for rank, module, shape in ((1, nn.InstanceNorm1d, (13,)), (2, nn.InstanceNorm2d, (5, 7)), (3, nn.InstanceNorm3d, (2, 3, 5))):
    family.layer(f"instance_norm_{rank}d", "instance_norm", {}, module(3), [(2, 3, *shape)])
options = {"affine": True, "eps": 1e-3}
family.layer("instance_norm_affine", "instance_norm", options, nn.InstanceNorm2d(5, **options), [(1, 5, 4, 3)])

for mode in ("train", "eval"):
    family.layer(f"batch_norm_1d_{mode}", "batch_norm", {}, nn.BatchNorm1d(3), [(2, 3, 11)], mode=mode)
    family.layer(f"batch_norm_3d_{mode}", "batch_norm", {}, nn.BatchNorm3d(2), [(3, 2, 2, 3, 5)], mode=mode)
    plain = {"affine": False}
    family.layer(f"batch_norm_plain_{mode}", "batch_norm", plain, nn.BatchNorm2d(5, **plain), [(2, 5, 3, 3)], mode=mode)
family.write()
