"""Recurrent layers."""

from torch import nn

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


for layer in KINDS:
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
