"""Records what PyTorch computes for single layers: outputs, gradients, new states.

A family of layers is one script beside this one. It makes a `Family`, adds cases, and writes it:

    family = Family("linear")
    family.layer("plain", "linear", {"out_features": 7}, nn.Linear(5, 7), [(3, 5)])
    family.write()

An input is a shape, filled with normal numbers, or a function of the family that draws it.

Everything is computed in f64 from values that f32 holds exactly, and stored as f32. See README.md
for the names in a file.
"""

import json
import platform
import sys
import zlib
from pathlib import Path

import torch
from safetensors.torch import save_file


def exact(tensor):
    """The values of a float tensor rounded to f32, in f64."""
    return tensor.float().double()


def words(options):
    """Options as a reader of a table would write them: `stride 2, bias false`."""
    said = [f"{key} {json.dumps(value)}" for key, value in options.items()]
    return ", ".join(said).replace('"', "") or "defaults"


class Family:
    """The cases of one family. Each case draws all its numbers, those of parameters too, from a
    generator seeded by its name: a new case changes no other."""

    def __init__(self, name):
        self.name = name
        self.cases = []
        self.tensors = {}
        self.generator = torch.Generator()

    def normal(self, *shape, scale=1.0, shift=0.0):
        """A normal input, rounded to f32."""
        return exact(torch.randn(*shape, generator=self.generator) * scale + shift)

    def distinct(self, *shape, step=0.05):
        """No two elements equal or close: for maxima."""
        count = torch.Size(shape).numel()
        order = torch.randperm(count, generator=self.generator)
        return exact((order - count / 2 + 0.5) * step).reshape(shape)

    def ids(self, bound, *shape):
        """Integers from 0 up to `bound`, not included."""
        return torch.randint(bound, shape, generator=self.generator)

    def fill(self, parameter):
        """A parameter's values: around its first value where all its elements have one (so away
        from zeros and ones, which hide errors), else around 0 and as large as its fan-in asks."""
        if parameter.numel() > 1 and parameter.min() == parameter.max():
            return exact(parameter + self.normal(*parameter.shape, scale=0.3))
        fan_in = parameter[0].numel() if parameter.dim() > 1 else 4
        return self.normal(*parameter.shape, scale=fan_in**-0.5)

    def layer(self, case, layer, options, module, inputs, **more):
        """A case of one layer under the name `l`; its parameters are `l.` and PyTorch's names."""
        model = {"layers": [{layer: {"name": "l"} | options}]}
        self.case(case, layer, words(options), model, module, inputs, prefix="l.", **more)

    def case(
        self, case, layer, options, model, module, inputs, mode="train", prefix="", rename={}, forward=None
    ):
        """A case of any model. `module` is a module or a function. `forward(module, *inputs)` gives
        one output or several; without it the module is called. `rename` maps PyTorch's names of
        parameters to the model's; `prefix` stands before the others."""
        self.generator.manual_seed(zlib.crc32(f"{self.name}/{case}".encode()))
        inputs = [draw(self) if callable(draw) else self.normal(*draw) for draw in inputs]
        module = module.double() if isinstance(module, torch.nn.Module) else module
        parameters, states = {}, {}
        if isinstance(module, torch.nn.Module):
            module.train(mode == "train")
            name = lambda n: rename.get(n, prefix + n)
            parameters = {name(n): p for n, p in module.named_parameters()}
            states = {name(n): b for n, b in module.named_buffers() if b.is_floating_point()}
        with torch.no_grad():
            for parameter in parameters.values():
                parameter.copy_(self.fill(parameter))
            for state in states.values():
                state.copy_(exact(state + self.normal(*state.shape, scale=0.2).abs()))
        record = {f"param.{n}": p.detach().clone() for n, p in parameters.items()}
        record |= {f"state.{n}": s.clone() for n, s in states.items()}
        inputs = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
        outputs = forward(module, *inputs) if forward else module(*inputs)
        outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        cotangents = [self.normal(*y.shape) for y in outputs]
        sum((y * dy).sum() for y, dy in zip(outputs, cotangents)).backward()
        for index, x in enumerate(inputs):
            record[f"x{index}"] = x
            if x.is_floating_point():
                record[f"dx{index}"] = x.grad
        for index, (y, dy) in enumerate(zip(outputs, cotangents)):
            record |= {f"y{index}": y, f"dy{index}": dy}
        record |= {f"dparam.{n}": p.grad for n, p in parameters.items() if p.grad is not None}
        if mode == "train":
            record |= {f"newstate.{n}": s for n, s in states.items()}
        self.tensors |= {f"{case}/{n}": t for n, t in record.items()}
        model = model if isinstance(model, str) else json.dumps(model)
        spec = {"name": case, "layer": layer, "options": options, "model": model, "mode": mode}
        assert all(case != other["name"] for other in self.cases), case
        self.cases.append(spec)

    def write(self):
        """Writes `<family>.safetensors` beside this file."""
        kind = lambda t: torch.float32 if t.is_floating_point() else torch.int32
        stored = {n: t.detach().to(kind(t)).contiguous().clone() for n, t in self.tensors.items()}
        made_with = {"torch": torch.__version__.split("+")[0], "python": platform.python_version()}
        metadata = {"cases": json.dumps(self.cases), "made_with": json.dumps(made_with)}
        path = Path(__file__).parent / f"{self.name}.safetensors"
        save_file(stored, path, metadata=metadata)
        print(f"{path.name}: {len(self.cases)} cases, {path.stat().st_size} bytes", file=sys.stderr)
