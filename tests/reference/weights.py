"""Writes weights.safetensors: the state of a small trained-looking net under PyTorch's names, with inputs and outputs of
the net in evaluation, as JSON, in its metadata."""

import json
import pathlib

import torch
from safetensors.torch import save_file

torch.manual_seed(5)
net = torch.nn.Sequential(
    torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5), torch.nn.ReLU(), torch.nn.Linear(5, 3)
)
with torch.no_grad():
    net[1].weight.uniform_(0.5, 1.5)
    net[1].bias.normal_()
    net[1].running_mean.normal_()
    net[1].running_var.uniform_(0.5, 2.0)
net.eval()
x = torch.randn(7, 4)
with torch.no_grad():
    y = torch.softmax(net.double()(x.double()), 1)
state = {f"net.{name}": tensor for name, tensor in net.float().state_dict().items()}
metadata = {"x": json.dumps(x.tolist()), "y": json.dumps(y.tolist())}
save_file(state, pathlib.Path(__file__).parent / "weights.safetensors", metadata=metadata)
