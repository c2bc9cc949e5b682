"""Writes optimizers.safetensors and schedules.json, what tests/optimizers.rs compares with.

    python optimizers.py [folder]        # default: the folder of this script

Each optimizer follows the gradient of Σ curvature·(p − target)²/2 for a hundred steps, the target
being another one in each step, in double precision. Optimizers that PyTorch does not have, and
Muon, which it runs in half precision, are written here from their papers' formulas.
"""

import json
import math
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

STEPS = 100
KEPT = [1, 2, 3, 10, 50, 100]
SHAPES = {"matrix": (5, 7), "tall": (11, 3), "bias": (7,), "one": (1,)}


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, algorithm 2."""

    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (b1, b2), lr = group["betas"], group["lr"]
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                direction = torch.sign(b1 * m + (1 - b1) * p.grad)
                p.sub_(lr * (direction + group["weight_decay"] * p))
                m.copy_(b2 * m + (1 - b2) * p.grad)


class Lamb(torch.optim.Optimizer):
    """You et al. 2020, algorithm 2, with the identity for φ."""

    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (b1, b2), lr = group["betas"], group["lr"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                state["t"] += 1
                state["m"] = b1 * state["m"] + (1 - b1) * p.grad
                state["v"] = b2 * state["v"] + (1 - b2) * p.grad**2
                m = state["m"] / (1 - b1 ** state["t"])
                v = state["v"] / (1 - b2 ** state["t"])
                r = m / (v.sqrt() + group["eps"]) + group["weight_decay"] * p
                of_p, of_r = p.norm().item(), r.norm().item()
                ratio = of_p / of_r if of_p > 0 and of_r > 0 else 1.0
                p.sub_(lr * ratio * r)


class Lars(torch.optim.Optimizer):
    """You et al. 2017, algorithm 1, with the rate outside of the momentum as in PyTorch's SGD."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=1e-3, eps=1e-8):
        defaults = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust=trust_coefficient, eps=eps)
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            decay = group["weight_decay"]
            for p in group["params"]:
                b = self.state[p].setdefault("b", torch.zeros_like(p))
                of_p, of_g = p.norm().item(), p.grad.norm().item()
                rate = 1.0
                if of_p > 0 and of_g > 0:
                    rate = group["trust"] * of_p / (of_g + decay * of_p + group["eps"])
                b.mul_(group["momentum"]).add_(rate * (p.grad + decay * p))
                p.sub_(group["lr"] * b)


class Muon(torch.optim.Optimizer):
    """Jordan et al. 2024, as torch.optim.Muon but without rounding to bfloat16."""

    def __init__(self, params, lr, weight_decay=0.1, momentum=0.95, nesterov=True, ns_steps=5, match=False):
        defaults = dict(lr=lr, decay=weight_decay, momentum=momentum, nesterov=nesterov, steps=ns_steps, match=match)
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self):
        a, b, c = 3.4445, -4.775, 2.0315
        for group in self.param_groups:
            for p in group["params"]:
                buffer = self.state[p].setdefault("b", torch.zeros_like(p))
                buffer.lerp_(p.grad, 1 - group["momentum"])
                x = p.grad.lerp(buffer, group["momentum"]) if group["nesterov"] else buffer
                rows, columns = x.shape
                x = x.T if rows > columns else x
                x = x / x.norm().clamp(min=1e-7)
                for _ in range(group["steps"]):
                    gram = x @ x.T
                    x = a * x + (b * gram + c * gram @ gram) @ x
                x = x.T if rows > columns else x
                size = 0.2 * math.sqrt(max(rows, columns)) if group["match"] else math.sqrt(max(1, rows / columns))
                p.mul_(1 - group["lr"] * group["decay"])
                p.sub_(group["lr"] * size * x)


class MuonAndAdamW:
    """Muon for matrices, AdamW for the rest."""

    def __init__(self, params, adamw, **options):
        self.parts = [
            Muon([p for p in params if p.dim() == 2], **options),
            torch.optim.AdamW([p for p in params if p.dim() != 2], **adamw),
        ]

    def zero_grad(self):
        for part in self.parts:
            part.zero_grad()

    def step(self):
        for part in self.parts:
            part.step()


class Grouped:
    """SGD whose parameters have options of their own; the last one is frozen."""

    def __init__(self, params):
        self.sgd = torch.optim.SGD(
            [
                dict(params=params[:1], lr=0.02, weight_decay=0.05),
                dict(params=params[1:2]),
                dict(params=params[2:3], lr=0.2),
            ],
            lr=0.1, momentum=0.9, weight_decay=0.01,
        )

    def zero_grad(self):
        self.sgd.zero_grad()

    def step(self):
        self.sgd.step()


optim = torch.optim
# Name, the optimizer, and its section of a configuration (`decay: all` is added).
CASES = [
    ("sgd", lambda p: optim.SGD(p, 0.1), "sgd: {lr: 0.1}"),
    ("sgd_momentum", lambda p: optim.SGD(p, 0.05, momentum=0.9, dampening=0.3, weight_decay=0.01),
     "sgd: {lr: 0.05, momentum: 0.9, dampening: 0.3, weight_decay: 0.01}"),
    ("sgd_nesterov", lambda p: optim.SGD(p, 0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
     "sgd: {lr: 0.05, momentum: 0.9, nesterov: true, weight_decay: 0.01}"),
    ("adam", lambda p: optim.Adam(p, 0.02, weight_decay=0.01), "adam: {lr: 0.02, weight_decay: 0.01}"),
    ("adam_amsgrad", lambda p: optim.Adam(p, 0.02, betas=(0.8, 0.9), amsgrad=True),
     "adam: {lr: 0.02, betas: [0.8, 0.9], amsgrad: true}"),
    ("adamw", lambda p: optim.AdamW(p, 0.02, weight_decay=0.1), "adamw: {lr: 0.02, weight_decay: 0.1}"),
    ("adamw_amsgrad", lambda p: optim.AdamW(p, 0.02, amsgrad=True), "adamw: {lr: 0.02, amsgrad: true}"),
    ("adamax", lambda p: optim.Adamax(p, 0.02, weight_decay=0.01), "adamax: {lr: 0.02, weight_decay: 0.01}"),
    ("nadam", lambda p: optim.NAdam(p, 0.02, weight_decay=0.01), "nadam: {lr: 0.02, weight_decay: 0.01}"),
    ("nadam_decoupled", lambda p: optim.NAdam(p, weight_decay=0.1, decoupled_weight_decay=True),
     "nadam: {weight_decay: 0.1, decoupled_weight_decay: true}"),
    ("radam", lambda p: optim.RAdam(p, 0.02, weight_decay=0.01), "radam: {lr: 0.02, weight_decay: 0.01}"),
    ("radam_decoupled", lambda p: optim.RAdam(p, 0.02, betas=(0.9, 0.95), weight_decay=0.1, decoupled_weight_decay=True),
     "radam: {lr: 0.02, betas: [0.9, 0.95], weight_decay: 0.1, decoupled_weight_decay: true}"),
    ("adagrad", lambda p: optim.Adagrad(p, 0.1, lr_decay=0.01, weight_decay=0.01, initial_accumulator_value=0.1),
     "adagrad: {lr: 0.1, lr_decay: 0.01, weight_decay: 0.01, initial_accumulator_value: 0.1}"),
    ("adadelta", lambda p: optim.Adadelta(p, weight_decay=0.01), "adadelta: {weight_decay: 0.01}"),
    ("rmsprop", lambda p: optim.RMSprop(p, 0.01, weight_decay=0.01), "rmsprop: {lr: 0.01, weight_decay: 0.01}"),
    ("rmsprop_centered", lambda p: optim.RMSprop(p, 0.01, momentum=0.8, centered=True),
     "rmsprop: {lr: 0.01, momentum: 0.8, centered: true}"),
    ("lion", lambda p: Lion(p, 0.01, weight_decay=0.1), "lion: {lr: 0.01, weight_decay: 0.1}"),
    ("lamb", lambda p: Lamb(p, 0.02), "lamb: {lr: 0.02}"),
    ("lars", lambda p: Lars(p, 0.2, weight_decay=0.01, trust_coefficient=0.02),
     "lars: {lr: 0.2, weight_decay: 0.01, trust_coefficient: 0.02}"),
    ("adafactor", lambda p: optim.Adafactor(p, 0.05, eps=(2.0**-23, 1e-3), weight_decay=0.1),
     "adafactor: {lr: 0.05, weight_decay: 0.1}"),
    ("muon", lambda p: MuonAndAdamW(p, dict(lr=0.01, weight_decay=0.01), lr=0.02),
     "muon: {lr: 0.02, adamw_lr: 0.01}"),
    ("muon_match", lambda p: MuonAndAdamW(p, dict(lr=0.02, weight_decay=0.01), lr=0.02, nesterov=False, match=True),
     "muon: {lr: 0.02, nesterov: false, adjust_lr: match_rms_adamw, adamw_lr: 0.02}"),
    ("groups", Grouped, "sgd: {lr: 0.1, momentum: 0.9, weight_decay: 0.01}"),
]

GROUPS = """
param_groups:
  - {params: matrix, lr_factor: 0.2, weight_decay: 0.05}
  - {params: b*, lr_factor: 2.0}
  - {params: one, trainable: false}
"""


def trajectory(name, make, start, curvature, targets):
    params = {key: torch.nn.Parameter(value.clone()) for key, value in start.items()}
    optimizer = make(list(params.values()))
    kept = {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = sum(
            (curvature[key] * (p - targets[key][step]) ** 2).sum() / 2 for key, p in params.items()
        )
        loss.backward()
        optimizer.step()
        if step + 1 in KEPT:
            for key, p in params.items():
                kept[f"{name}/{step + 1}/{key}"] = p.detach().float().contiguous()
    return kept


def optimizers(folder):
    generator = torch.Generator().manual_seed(5)

    def normal(*shape):
        # Rounded to single precision, so that both sides begin with the same numbers.
        return torch.randn(*shape, generator=generator).double()

    start = {key: normal(*shape) for key, shape in SHAPES.items()}
    curvature = {key: normal(*shape).abs() + 0.3 for key, shape in SHAPES.items()}
    curvature = {key: value.float().double() for key, value in curvature.items()}
    targets = {key: normal(STEPS, *shape) for key, shape in SHAPES.items()}
    tensors, cases = {}, []
    for key in SHAPES:
        tensors[f"start/{key}"] = start[key].float()
        tensors[f"curvature/{key}"] = curvature[key].float()
        tensors[f"target/{key}"] = targets[key].float()
    for name, make, section in CASES:
        tensors.update(trajectory(name, make, start, curvature, targets))
        section = section.rstrip("}") + ", decay: all}"
        config = f"optimizer: {{{section}}}\n" + (GROUPS if name == "groups" else "")
        cases.append({"name": name, "config": config})
    save_file(tensors, folder / "optimizers.safetensors", metadata={"cases": json.dumps(cases)})


def schedules(folder):
    scheduler = torch.optim.lr_scheduler
    lr, total = 0.5, 40

    def rates(make, steps=total):
        sgd = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
        schedule = make(sgd)
        found = []
        for _ in range(steps):
            found.append(sgd.param_groups[0]["lr"])
            sgd.step()
            schedule.step()
        return found

    def warm(make, warmup, section):
        """A linear rise over the first steps, as LinearLR gives it, then the schedule."""

        def both(sgd):
            rise = scheduler.LinearLR(sgd, 1 / warmup, 1.0, warmup - 1) if warmup > 1 else None
            return scheduler.SequentialLR(sgd, [rise, make(sgd)], [warmup])

        return section, rates(both)

    cases = [
        ("constant", rates(lambda o: scheduler.ConstantLR(o, 1.0, 1))),
        ("{step: {step_size: 7, gamma: 0.3}}", rates(lambda o: scheduler.StepLR(o, 7, 0.3))),
        ("{multistep: {milestones: [5, 6, 20], gamma: 0.5}}", rates(lambda o: scheduler.MultiStepLR(o, [5, 6, 20], 0.5))),
        ("{exponential: {gamma: 0.9}}", rates(lambda o: scheduler.ExponentialLR(o, 0.9))),
        ("{polynomial: {power: 2.0, total_steps: 30}}", rates(lambda o: scheduler.PolynomialLR(o, 30, 2.0))),
        ("{cosine: {min_lr: 0.05}}", rates(lambda o: scheduler.CosineAnnealingLR(o, total, 0.05))),
        ("{cosine_restarts: {t_0: 6, min_lr: 0.01}}", rates(lambda o: scheduler.CosineAnnealingWarmRestarts(o, 6, 1, 0.01))),
        ("{cosine_restarts: {t_0: 5, t_mult: 2}}", rates(lambda o: scheduler.CosineAnnealingWarmRestarts(o, 5, 2))),
        ("one_cycle", rates(lambda o: scheduler.OneCycleLR(o, lr, total), total - 1)),
        ("{one_cycle: {pct_start: 0.4, anneal_strategy: linear, div_factor: 10, final_div_factor: 100, three_phase: true}}",
         rates(lambda o: scheduler.OneCycleLR(o, lr, total, pct_start=0.4, anneal_strategy="linear", div_factor=10,
                                              final_div_factor=100, three_phase=True), total - 1)),
        ("{linear: {end_lr: 0.1, total_steps: 20}}", rates(lambda o: scheduler.LinearLR(o, 1.0, 0.2, 20))),
        ("{cyclic: {base_lr: 0.1, step_size_up: 4, step_size_down: 7}}",
         rates(lambda o: scheduler.CyclicLR(o, 0.1, lr, 4, 7, cycle_momentum=False))),
        ("{cyclic: {base_lr: 0.1, step_size_up: 5, mode: triangular2}}",
         rates(lambda o: scheduler.CyclicLR(o, 0.1, lr, 5, mode="triangular2", cycle_momentum=False))),
        ("{cyclic: {base_lr: 0.1, step_size_up: 5, mode: exp_range, gamma: 0.95}}",
         rates(lambda o: scheduler.CyclicLR(o, 0.1, lr, 5, mode="exp_range", gamma=0.95, cycle_momentum=False))),
        ("{chained: {schedules: [constant, {exponential: {gamma: 0.8}}, {step: {step_size: 3}}], milestones: [8, 15]}}",
         rates(lambda o: scheduler.SequentialLR(o, [scheduler.ConstantLR(o, 1.0, 1), scheduler.ExponentialLR(o, 0.8),
                                                    scheduler.StepLR(o, 3)], [8, 15]))),
        warm(lambda o: scheduler.CosineAnnealingLR(o, total - 6), 6, "{cosine: {warmup_steps: 6}}"),
        warm(lambda o: scheduler.StepLR(o, 9), 5, "{step: {warmup_steps: 5, step_size: 9}}"),
        # From their papers' formulas.
        ("{inverse_sqrt: {warmup_steps: 9}}", [lr * min(t / 9, math.sqrt(9 / t)) for t in range(1, total + 1)]),
        ("{wsd: {warmup_steps: 4, decay_steps: 10, min_lr: 0.1}}",
         [lr * t / 4 if t <= 4 else lr if t <= 30 else lr + (0.1 - lr) * (t - 31) / 10 for t in range(1, total + 1)]),
        ("{wsd: {decay_steps: 10, decay: sqrt}}",
         [lr if t <= 30 else lr * (1 - math.sqrt((t - 31) / 10)) for t in range(1, total + 1)]),
        ("{piecewise: {points: [[4, 0.0], [8, 1.0], [20, 0.5]]}}",
         [lr * (0 if t <= 4 else (t - 4) / 4 if t <= 8 else 1 - 0.5 * (t - 8) / 12 if t <= 20 else 0.5) for t in range(total)]),
    ]
    values = [1.0, 0.9, 0.9, 0.95, 0.91, 0.8, 0.85, 0.85, 0.85, 0.85, 0.85, 0.7, 0.7, 0.7, 0.7, 0.7, 0.6, 0.6, 0.6]
    plateaus = []
    for section, options in [
        ("{factor: 0.5, patience: 2}", dict(factor=0.5, patience=2)),
        ("{factor: 0.1, patience: 0, cooldown: 2, min_lr: 0.02}", dict(factor=0.1, patience=0, cooldown=2, min_lr=0.02)),
        ("{factor: 0.5, patience: 1, threshold: 0.05, threshold_mode: abs}",
         dict(factor=0.5, patience=1, threshold=0.05, threshold_mode="abs")),
        ("{factor: 0.5, patience: 1, mode: max}", dict(factor=0.5, patience=1, mode="max")),
    ]:
        sgd = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
        plateau = scheduler.ReduceLROnPlateau(sgd, **options)
        found = []
        for value in values:
            plateau.step(value)
            found.append(sgd.param_groups[0]["lr"])
        plateaus.append({"schedule": f"{{reduce_on_plateau: {section}}}", "rates": found})
    document = {
        "lr": lr, "total": total, "schedules": [{"schedule": s, "rates": r} for s, r in cases],
        "plateau_values": values, "plateaus": plateaus,
    }
    (folder / "schedules.json").write_text(json.dumps(document, indent=1) + "\n")


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    optimizers(folder)
    schedules(folder)


main()
