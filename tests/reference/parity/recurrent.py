"""Recurrent layers."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from record import Family

family = Family("recurrent")

KINDS = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


def last(module, x):
    """The last layer's state after the last step, of both directions."""
    h = module(x)[1]
    h = h[0] if isinstance(h, tuple) else h
    directions = 2 if module.bidirectional else 1
    return h[-directions:].transpose(0, 1).flatten(1)


def case(name, layer, features, options, shape):
    torchs = {key: value for key, value in options.items() if key != "output"}
    module = KINDS[layer](features, batch_first=True, **torchs)
    forward = last if options.get("output") == "last" else lambda module, x: module(x)[0]
    family.layer(name, layer, options, module, [shape + (features,)], forward=forward)


def packed(module, x, lengths):
    """The module over sequences that end before the last step, and the length to pad to."""
    rows = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return module(rows), x.shape[1]


def packed_states(module, x, lengths):
    (rows, _), time = packed(module, x, lengths)
    return pad_packed_sequence(rows, batch_first=True, total_length=time)[0]


def packed_last(module, x, lengths):
    (_, h), _ = packed(module, x, lengths)
    h = h[0] if isinstance(h, tuple) else h
    directions = 2 if module.bidirectional else 1
    return h[-directions:].transpose(0, 1).flatten(1)


def packed_case(name, layer, features, options, time, lengths):
    torchs = {key: value for key, value in options.items() if key != "output"}
    module = KINDS[layer](features, batch_first=True, **torchs)
    forward = packed_last if options.get("output") == "last" else packed_states
    inputs = [(len(lengths), time, features), lambda family: torch.tensor(lengths)]
    family.layer(name, layer, options | {"lengths": "x1"}, module, inputs, forward=forward)


for layer in KINDS:
    packed_case(f"{layer}_lengths", layer, 3, {"hidden_size": 5}, 6, [4, 6, 1])
    both = {"hidden_size": 4, "num_layers": 2, "bidirectional": True}
    packed_case(f"{layer}_lengths_both_ways", layer, 3, both, 5, [2, 5, 1, 3])
    packed_case(f"{layer}_lengths_last", layer, 3, {"hidden_size": 8, "output": "last"}, 4, [3, 1])
    last_of_both = both | {"output": "last"}
    packed_case(f"{layer}_lengths_both_ways_last", layer, 2, last_of_both, 7, [7, 3, 6])
    case(layer, layer, 5, {"hidden_size": 7}, (3, 5))
    case(f"{layer}_one", layer, 1, {"hidden_size": 1}, (1, 1))
    case(f"{layer}_no_bias", layer, 3, {"hidden_size": 4, "bias": False}, (2, 3))
    case(f"{layer}_layers", layer, 4, {"hidden_size": 5, "num_layers": 3}, (2, 7))
    both = {"hidden_size": 5, "num_layers": 2, "bidirectional": True}
    case(f"{layer}_both_ways", layer, 3, both, (2, 5))
    case(f"{layer}_last", layer, 3, {"hidden_size": 8, "output": "last"}, (3, 4))
    case(f"{layer}_both_ways_last", layer, 3, both | {"output": "last"}, (2, 3))
    case(f"{layer}_wide", layer, 5, {"hidden_size": 36}, (17, 3))
relu = {"hidden_size": 7, "nonlinearity": "relu", "num_layers": 2}
case("rnn_relu", "rnn", 5, relu, (3, 5))
family.write()
