"""Writes losses.safetensors: each loss of PyTorch over several options and sizes, with its gradient.

Tensors of a case: `<case>/x` the output, `<case>/y` the target (f32 or i32; absent where the loss has
none), `<case>/loss` the mean in f64, `<case>/dx` its gradient with respect to the output. The metadata
key `cases` is a JSON list of {"name", "loss"}, where `loss` is the YAML of the `loss` section.

Computed in f64 from inputs that are exact in f32. Where PyTorch has no such loss (dice, info_nce,
focal), the formula stands here in PyTorch's terms.
"""

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

torch.manual_seed(5)
TENSORS, CASES = {}, []


def case(name, loss, function, x, y=None):
    x = x.float().double().requires_grad_()
    value = function(x, y.float().double() if y is not None and y.is_floating_point() else y)
    value.backward()
    TENSORS[f"{name}/x"] = x.detach().float().contiguous()
    TENSORS[f"{name}/dx"] = x.grad.float().contiguous()
    TENSORS[f"{name}/loss"] = value.detach().reshape(1).contiguous()
    if y is not None:
        TENSORS[f"{name}/y"] = (y.float() if y.is_floating_point() else y.int()).contiguous()
    CASES.append({"name": name, "loss": loss})


def normal(*shape):
    return torch.randn(*shape).float()


def classes(count, *shape, ignore=None):
    ids = torch.randint(count, shape)
    if ignore is not None:
        ids.view(-1)[::3] = ignore
    return ids


def shares(*shape, dim):
    return torch.softmax(normal(*shape) * 2, dim)


def signs(*shape):
    return torch.randint(2, shape).float() * 2 - 1


# Cross entropy: rows, tokens [batch, time, classes], images [batch, classes, height, width].
five, seven = [0.5, 2.0, 1.0, 0.25, 3.0], [0.5, 2.0, 1.0, 0.25, 3.0, 1.5, 0.75]
t5, t7 = torch.tensor(five).double(), torch.tensor(seven).double()
CE = F.cross_entropy
case("cross_entropy", "cross_entropy", CE, normal(7, 5), classes(5, 7))
case("cross_entropy_one", "cross_entropy", CE, normal(1, 2), classes(2, 1))
case("cross_entropy_smooth", "{cross_entropy: {label_smoothing: 0.1}}", lambda x, y: CE(x, y, label_smoothing=0.1), normal(13, 5), classes(5, 13))
case("cross_entropy_ignored", "{cross_entropy: {ignore_index: -1}}", lambda x, y: CE(x, y, ignore_index=-1), normal(11, 7), classes(7, 11, ignore=-1))
case("cross_entropy_weight", f"{{cross_entropy: {{weight: {five}}}}}", lambda x, y: CE(x, y, weight=t5), normal(17, 5), classes(5, 17))
case("cross_entropy_all", f"{{cross_entropy: {{weight: {seven}, label_smoothing: 0.2, ignore_index: 3}}}}", lambda x, y: CE(x, y, weight=t7, label_smoothing=0.2, ignore_index=3), normal(19, 7), classes(7, 19))
case("cross_entropy_tokens", "cross_entropy", lambda x, y: CE(x.transpose(1, 2), y), normal(3, 5, 11), classes(11, 3, 5))
case("cross_entropy_images", "cross_entropy", CE, normal(2, 3, 5, 7), classes(3, 2, 5, 7))
case("cross_entropy_images_all", f"{{cross_entropy: {{weight: {five}, label_smoothing: 0.3, ignore_index: 255}}}}", lambda x, y: CE(x, y, weight=t5, label_smoothing=0.3, ignore_index=255), normal(3, 5, 3, 11), classes(5, 3, 3, 11, ignore=255))
case("cross_entropy_soft", "cross_entropy", CE, normal(7, 5), shares(7, 5, dim=1))
case("cross_entropy_soft_all", f"{{cross_entropy: {{weight: {five}, label_smoothing: 0.1}}}}", lambda x, y: CE(x, y, weight=t5, label_smoothing=0.1), normal(7, 5), shares(7, 5, dim=1))
case("cross_entropy_soft_images", "cross_entropy", CE, normal(2, 3, 4, 5), shares(2, 3, 4, 5, dim=1))
case("cross_entropy_far", "cross_entropy", CE, normal(5, 7) * 60, classes(7, 5))

logs = lambda *shape, dim=1: torch.log_softmax(normal(*shape), dim)
case("nll", "nll", F.nll_loss, logs(7, 5), classes(5, 7))
case("nll_all", f"{{nll: {{weight: {seven}, ignore_index: 2}}}}", lambda x, y: F.nll_loss(x, y, weight=t7, ignore_index=2), logs(23, 7), classes(7, 23))
case("nll_images", "nll", F.nll_loss, logs(2, 3, 5, 7), classes(3, 2, 5, 7, ignore=-100))
case("nll_one", "nll", F.nll_loss, logs(1, 3), classes(3, 1))

BCE = F.binary_cross_entropy_with_logits
case("binary", "binary_cross_entropy", BCE, normal(7, 3), torch.randint(2, (7, 3)).float())
case("binary_one", "binary_cross_entropy", BCE, normal(1, 1), torch.ones(1, 1))
case("binary_soft_far", "binary_cross_entropy", BCE, normal(13, 5) * 40, torch.rand(13, 5))
case("binary_zero", "binary_cross_entropy", BCE, torch.zeros(5, 3), torch.rand(5, 3))
case("binary_pos_weight", "{binary_cross_entropy: {pos_weight: 2.5}}", lambda x, y: BCE(x, y, pos_weight=torch.tensor(2.5).double()), normal(11, 3), torch.randint(2, (11, 3)).float())
case("binary_pos_weights", f"{{binary_cross_entropy: {{pos_weight: {five}}}}}", lambda x, y: BCE(x, y, pos_weight=t5), normal(11, 5), torch.randint(2, (11, 5)).float())
case("binary_pos_weights_images", "{binary_cross_entropy: {pos_weight: [0.5, 3.0]}}", lambda x, y: BCE(x, y, pos_weight=torch.tensor([0.5, 3.0]).double().reshape(2, 1, 1)), normal(3, 2, 3, 5), torch.randint(2, (3, 2, 3, 5)).float())
case("binary_class", "binary_cross_entropy", lambda x, y: BCE(x.squeeze(1), y.double()), normal(17, 1), classes(2, 17))
case("binary_classes", "binary_cross_entropy", lambda x, y: BCE(x, F.one_hot(y, 5).double()), normal(7, 5), classes(5, 7))


def focal(x, y, alpha=0.25, gamma=2.0):
    # torchvision.ops.sigmoid_focal_loss with reduction="mean".
    p = torch.sigmoid(x)
    p_t = p * y + (1 - p) * (1 - y)
    loss = BCE(x, y, reduction="none") * (1 - p_t) ** gamma
    return (loss if alpha is None else (alpha * y + (1 - alpha) * (1 - y)) * loss).mean()


case("focal", "focal", focal, normal(7, 3) * 2, torch.randint(2, (7, 3)).float())
case("focal_gamma", "{focal: {alpha: null, gamma: 1.5}}", lambda x, y: focal(x, y, None, 1.5), normal(11, 5) * 3, torch.randint(2, (11, 5)).float())
case("focal_none", "{focal: {alpha: 0.7, gamma: 0}}", lambda x, y: focal(x, y, 0.7, 0.0), normal(5, 2), torch.randint(2, (5, 2)).float())
case("focal_classes", "focal", lambda x, y: focal(x, F.one_hot(y, 5).double()), normal(13, 5), classes(5, 13))


def dice(p, t, smooth):
    p, t = p.flatten(2), t.flatten(2)
    return (1 - (2 * (p * t).sum(2) + smooth) / (p.sum(2) + t.sum(2) + smooth)).mean()


case("dice", "dice", lambda x, y: dice(torch.softmax(x, 1), F.one_hot(y, 3).movedim(-1, 1).double(), 1.0), normal(3, 3, 5, 7), classes(3, 3, 5, 7))
case("dice_mask", "{dice: {smooth: 0.01}}", lambda x, y: dice(torch.sigmoid(x), y, 0.01), normal(2, 2, 5, 3), torch.randint(2, (2, 2, 5, 3)).float())
case("dice_rows", "dice", lambda x, y: dice(torch.sigmoid(x[:, None]), y[:, None], 1.0), normal(5, 13), torch.randint(2, (5, 13)).float())

for name, loss, function in [
    ("mse", "mse", F.mse_loss),
    ("l1", "l1", F.l1_loss),
    ("smooth_l1", "smooth_l1", F.smooth_l1_loss),
    ("smooth_l1_beta", "{smooth_l1: {beta: 0.3}}", lambda x, y: F.smooth_l1_loss(x, y, beta=0.3)),
    ("smooth_l1_zero", "{smooth_l1: {beta: 0}}", lambda x, y: F.smooth_l1_loss(x, y, beta=0.0)),
    ("huber", "huber", F.huber_loss),
    ("huber_delta", "{huber: {delta: 0.4}}", lambda x, y: F.huber_loss(x, y, delta=0.4)),
]:
    case(name, loss, function, normal(7, 5), normal(7, 5))
    case(f"{name}_one", loss, function, normal(1, 1), normal(1, 1))
    case(f"{name}_images", loss, function, normal(3, 2, 5, 7), normal(3, 2, 5, 7))

case("kl_div", "kl_div", F.kl_div, logs(7, 5), shares(7, 5, dim=1))
hard = F.one_hot(classes(5, 11), 5).float()
case("kl_div_zeros", "{kl_div: {reduction: batchmean}}", lambda x, y: F.kl_div(x, y, reduction="batchmean"), logs(11, 5), hard)
case("kl_div_log", "{kl_div: {log_target: true, reduction: batchmean}}", lambda x, y: F.kl_div(x, y, reduction="batchmean", log_target=True), logs(3, 13), logs(3, 13))


def gaussian(x, y, **options):
    mean, variance = x.chunk(2, 1)
    return F.gaussian_nll_loss(mean, y, variance, **options)


positive = lambda *shape: torch.cat([normal(*shape), torch.rand(*shape) + 0.05], 1)
case("gaussian_nll", "gaussian_nll", gaussian, positive(7, 3), normal(7, 3))
case("gaussian_nll_full", "{gaussian_nll: {full: true}}", lambda x, y: gaussian(x, y, full=True), positive(1, 1), normal(1, 1))
case("gaussian_nll_images", "gaussian_nll", gaussian, positive(2, 3, 4, 5), normal(2, 3, 4, 5))

counts = lambda *shape: torch.poisson(torch.rand(*shape) * 4)
case("poisson_nll", "poisson_nll", F.poisson_nll_loss, normal(7, 3), counts(7, 3))
case("poisson_nll_full", "{poisson_nll: {full: true}}", lambda x, y: F.poisson_nll_loss(x, y, full=True), normal(13, 5), counts(13, 5))
case("poisson_nll_rate", "{poisson_nll: {log_input: false, full: true}}", lambda x, y: F.poisson_nll_loss(x, y, log_input=False, full=True), torch.rand(11, 3) + 0.1, counts(11, 3))

MM = F.multi_margin_loss
case("multi_margin", "multi_margin", MM, normal(7, 5), classes(5, 7))
case("multi_margin_square", f"{{multi_margin: {{p: 2, margin: 0.7, weight: {five}}}}}", lambda x, y: MM(x, y, p=2, margin=0.7, weight=t5), normal(13, 5), classes(5, 13))
case("multi_margin_one", "multi_margin", MM, normal(1, 2), classes(2, 1))

HE = F.hinge_embedding_loss
case("hinge_embedding", "hinge_embedding", HE, normal(7, 3), signs(7, 3))
case("hinge_embedding_margin", "{hinge_embedding: {margin: 0.5}}", lambda x, y: HE(x, y, margin=0.5), normal(13, 1), signs(13, 1))
case("hinge_embedding_class", "hinge_embedding", lambda x, y: HE(x.squeeze(1), y.double() * 2 - 1), normal(11, 1), classes(2, 11))

COS = F.cosine_embedding_loss
case("cosine_embedding", "cosine_embedding", lambda x, y: COS(x[:, 0], x[:, 1], y.squeeze(1)), normal(7, 2, 5), signs(7, 1))
case("cosine_embedding_margin", "{cosine_embedding: {margin: -0.3}}", lambda x, y: COS(x[:, 0], x[:, 1], y.double() * 2 - 1, margin=-0.3), normal(13, 2, 3), classes(2, 13))

TM = F.triplet_margin_loss
case("triplet_margin", "triplet_margin", lambda x, y: TM(x[:, 0], x[:, 1], x[:, 2]), normal(7, 3, 5))
case("triplet_margin_swap", "{triplet_margin: {margin: 2, swap: true}}", lambda x, y: TM(x[:, 0], x[:, 1], x[:, 2], margin=2, swap=True), normal(13, 3, 7))
case("triplet_margin_l1", "{triplet_margin: {margin: 3, p: 1}}", lambda x, y: TM(x[:, 0], x[:, 1], x[:, 2], margin=3, p=1), normal(5, 3, 3))


def info_nce(x, temperature):
    a, b = F.normalize(x[:, 0], dim=1), F.normalize(x[:, 1], dim=1)
    logits = a @ b.T / temperature
    own = torch.arange(len(x))
    return (CE(logits, own) + CE(logits.T, own)) / 2


case("info_nce", "info_nce", lambda x, y: info_nce(x, 0.07), normal(7, 2, 5))
case("info_nce_warm", "{info_nce: {temperature: 0.5}}", lambda x, y: info_nce(x, 0.5), normal(13, 2, 3))
case("info_nce_one", "info_nce", lambda x, y: info_nce(x, 0.07), normal(1, 2, 3))

def ctc(x, y, blank=0, zero_infinity=False):
    # Labels end at the first blank or negative number.
    ends = [next((i for i, v in enumerate(row) if v < 0 or v == blank), len(row)) for row in y.tolist()]
    logs = torch.log_softmax(x, 2).transpose(0, 1)
    return F.ctc_loss(logs, y.clamp(min=0), [x.shape[1]] * len(x), ends, blank=blank, zero_infinity=zero_infinity)


case("ctc", "ctc", ctc, normal(3, 11, 5), classes(4, 3, 4) + 1)
case("ctc_ended", "ctc", ctc, normal(7, 13, 5) * 2, torch.tensor([[1, 2, 2, 3], [4, 4, 0, 0], [0, 0, 0, 0], [3, -1, -1, -1], [1, 1, 1, 1], [2, 3, 2, 0], [4, 0, 0, 0]]))
case("ctc_blank_last", "{ctc: {blank: 6}}", lambda x, y: ctc(x, y, 6), normal(2, 37, 7), classes(6, 2, 13))
case("ctc_does_not_fit", "{ctc: {zero_infinity: true}}", lambda x, y: ctc(x, y, zero_infinity=True), normal(3, 4, 4), torch.tensor([[1, 1, 1, 1], [1, 2, 3, 0], [2, 2, 3, 1]]))
case("ctc_one", "ctc", ctc, normal(1, 1, 2), torch.ones(1, 1).long())

# Sums. The test's model gives its input out as `a` and as `b`.
def penalty(x, l1, l2):
    return (l1 * x.abs().sum() + l2 * (x * x).sum()) / len(x)


sums = [
    ("{a: {loss: {cross_entropy: {ignore_index: 1}}, weight: 0.3}, b: {loss: multi_margin, weight: 2}}", lambda x, y: 0.3 * CE(x, y, ignore_index=1) + 2 * MM(x, y)),
    (f"{{b: {{loss: {{nll: {{weight: {five}}}}}, weight: 0.5}}, a: {{loss: {{cross_entropy: {{weight: {five}, ignore_index: 0}}}}}}}}\npenalties: [{{layer: a, l1: 0.1, l2: 0.2}}]", lambda x, y: 0.5 * F.nll_loss(x, y, weight=t5) + CE(x, y, weight=t5, ignore_index=0) + penalty(x, 0.1, 0.2)),
    ("cross_entropy\npenalties: [{layer: a, l1: 0.01}, {layer: b, l2: 0.3}]", lambda x, y: CE(x, y) + penalty(x, 0.01, 0.3)),
]
for index, (loss, function) in enumerate(sums):
    case(f"sum_classes_{index}", loss, function, normal(11, 5), classes(5, 11))
case("sum_numbers", "{a: {loss: mse, weight: 0.5}, b: {loss: l1, weight: 3}}\npenalties: [{layer: b, l2: 0.7}]", lambda x, y: 0.5 * F.mse_loss(x, y) + 3 * F.l1_loss(x, y) + penalty(x, 0, 0.7), normal(7, 3, 5, 2), normal(7, 3, 5, 2))

def hinge(x, y, margin=1.0, p=1):
    # torchmetrics' and Keras' hinge loss, of signs.
    return ((margin - x * y).clamp(min=0) ** p).mean()


case("hinge", "hinge", hinge, normal(7, 3), signs(7, 3))
case("hinge_square", "{hinge: {p: 2, margin: 0.5}}", lambda x, y: hinge(x, y, 0.5, 2), normal(13, 1), signs(13, 1))
case("hinge_class", "hinge", lambda x, y: hinge(x.squeeze(1), y.double() * 2 - 1), normal(11, 1), classes(2, 11))
case("hinge_classes", "{hinge: {p: 2, margin: 0.7}}", lambda x, y: MM(x, y, p=2, margin=0.7), normal(13, 5), classes(5, 13))

path = Path(__file__).with_name("losses.safetensors")
save_file(TENSORS, path, {"cases": json.dumps(CASES)})
print(f"{len(CASES)} cases, {path.stat().st_size} bytes")
