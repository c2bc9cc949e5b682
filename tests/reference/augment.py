"""What torchvision makes of one image by each change of known strength, for src/data/augment/tests.rs.

    pip install torch torchvision numpy safetensors
    python tests/reference/augment.py [FILE]
"""
import json
import math
import sys

import torch
import torchvision
from torchvision.transforms import v2
from safetensors.torch import save_file
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms.v2 import functional as F

torch.manual_seed(3)
# Values of bytes, 3 x 20 x 28; the third channel is smooth and narrow.
noise = torch.randint(0, 256, (2, 20, 28))
ramp = (torch.arange(20 * 28).view(1, 20, 28) // 4 + 60) % 180
image = torch.cat([noise, ramp]).to(torch.uint8)
x = image.float() / 255

out = {"image": x}
out["resize_down"] = F.resized_crop(x, 2, 3, 15, 22, [20, 28], Mode.BILINEAR, antialias=True)
out["resize_up"] = F.resized_crop(x, 7, 1, 9, 6, [20, 28], Mode.BILINEAR, antialias=True)
out["resize_tall"] = F.resize(x[:, :, 4:9], [20, 28], Mode.BILINEAR, antialias=True)
out["rotate_nearest"] = F.rotate(x, 33.3, Mode.NEAREST)
out["rotate_bilinear"] = F.rotate(x, -71.9, Mode.BILINEAR)
out["affine"] = F.affine(x, 21.7, [3, -2], 1.23, [11.1, 0.0], Mode.BILINEAR)
out["shear_y"] = F.affine(x, 0.0, [0, 0], 1.0, [0.0, math.degrees(math.atan(-0.237))], Mode.BILINEAR, center=[0, 0])
out["vertical"] = F.vertical_flip(x)
out["brightness"] = F.adjust_brightness(x, 1.37)
out["contrast"] = F.adjust_contrast(x, 0.41)
out["contrast_gray"] = F.adjust_contrast(x[:1], 1.7)
out["saturation"] = F.adjust_saturation(x, 1.61)
out["hue"] = F.adjust_hue(x, -0.31)
out["hue_up"] = F.adjust_hue(x, 0.17)
out["grayscale"] = F.rgb_to_grayscale(x, 3)
out["sharpness"] = F.adjust_sharpness(x, 1.83)
out["blur"] = F.gaussian_blur(x, [5, 5], [1.3, 1.3])
out["posterize"] = F.posterize(x, 3)
out["solarize"] = F.solarize(x, 0.43)
out["auto_contrast"] = F.autocontrast(x)
out["equalize"] = F.equalize(x)

# Strengths of each kind of change by step; 0 where a kind has none.
for name, policy in (("rand_augment", v2.RandAugment()), ("trivial_augment", v2.TrivialAugmentWide())):
    for size in ((20, 28), (32, 32), (224, 224)):
        rows = []
        for strengths, _ in policy._AUGMENTATION_SPACE.values():
            strength = strengths(31, *size)
            rows.append(torch.zeros(31) if strength is None else torch.as_tensor(strength).float())
        out[f"{name}_{size[0]}x{size[1]}"] = torch.stack(rows)

spec = {"made_with": {"torch": torch.__version__, "torchvision": torchvision.__version__}}
path = sys.argv[1] if len(sys.argv) > 1 else "tests/reference/augment.safetensors"
save_file({name: tensor.contiguous() for name, tensor in out.items()}, path, {"spec": json.dumps(spec)})
