"""Writes metrics.safetensors: the metrics of scikit-learn and torchmetrics over several sets.

Tensors of a case: `<case>/x` what the model gives (logits, or numbers) and `<case>/y` the targets
(i32 classes, or f32). The metadata key `cases` is a JSON list of {"name", "kind", "values"}: kind is
`classes`, `answers` or `numbers`, and values are pairs of a metric's YAML and its value.
"""

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from sklearn import metrics as sk
from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

torch.manual_seed(9)
TENSORS, CASES = {}, []
AVERAGES = [("macro", "macro"), ("micro", "micro"), ("per_class", None)]


def case(name, kind, x, y, values):
    TENSORS[f"{name}/x"], TENSORS[f"{name}/y"] = x.contiguous(), y.contiguous()
    values = [[metric, v.tolist() if isinstance(v, np.ndarray) else float(v)] for metric, v in values]
    CASES.append({"name": name, "kind": kind, "values": values})


def scores(y, named, **options):
    functions = [("precision", sk.precision_score), ("recall", sk.recall_score), ("f1", sk.f1_score)]
    for word, function in functions:
        for average, theirs in AVERAGES:
            yield f"{{{word}: {{average: {average}}}}}", function(y, named, average=theirs, zero_division=0, **options)


def per_class(function, y, p):
    """The mean over the classes that have examples and others."""
    there = [c for c in range(p.shape[1]) if 0 < (y == c).sum() < len(y)]
    return np.mean([function(y == c, p[:, c]) for c in there])


def calibration(confidence, right, bins, theirs):
    """In f64; torchmetrics, which adds in f32, must agree."""
    edges = np.ceil(confidence * bins).clip(1, bins)
    gaps = [abs((right - confidence)[edges == b].sum()) for b in range(1, bins + 1)]
    value = np.sum(gaps) / len(confidence)
    assert abs(value - float(theirs)) < 1e-6
    return value


def of_classes(name, count, rows, sharp=1.0, last=None):
    x = torch.randn(rows, count)
    y = torch.randint(last or count, (rows,))
    x[torch.arange(rows), y] += sharp
    p = torch.softmax(x.double(), 1).numpy()
    ids, named, labels = y.numpy(), x.argmax(1).numpy(), list(range(count))
    values = [
        ("accuracy", sk.accuracy_score(ids, named)),
        ("pixel_accuracy", sk.accuracy_score(ids, named)),
        ("mean_iou", sk.jaccard_score(ids, named, average="macro", zero_division=0)),
        ("confusion_matrix", sk.confusion_matrix(ids, named, labels=labels)),
    ]
    for bins, yaml in [(15, "calibration_error"), (4, "{calibration_error: {bins: 4}}")]:
        theirs = multiclass_calibration_error(torch.tensor(p), y, count, bins, "l1")
        values.append((yaml, calibration(p.max(1), named == ids, bins, theirs)))
    for average, theirs in AVERAGES:
        options = {"zero_division": 0, "average": theirs}
        if average == "per_class":
            options["labels"] = labels
        values += [
            (f"{{precision: {{average: {average}}}}}", sk.precision_score(ids, named, **options)),
            (f"{{recall: {{average: {average}}}}}", sk.recall_score(ids, named, **options)),
            (f"{{f1: {{average: {average}}}}}", sk.f1_score(ids, named, **options)),
        ]
    for k in [1, 2, 5]:
        top = (x.argsort(1, descending=True)[:, :k] == y[:, None]).any(1)
        values.append((f"{{top_k: {{k: {k}}}}}", top.double().mean()))
        if 2 < count and k < count and last is None and rows > count:
            assert abs(sk.top_k_accuracy_score(ids, x.numpy(), k=k, labels=labels) - float(top.double().mean())) < 1e-12
    if count == 2:
        values += [("roc_auc", sk.roc_auc_score(ids, p[:, 1])), ("average_precision", sk.average_precision_score(ids, p[:, 1]))]
    elif rows > 1:
        values += [("roc_auc", per_class(sk.roc_auc_score, ids, p)), ("average_precision", per_class(sk.average_precision_score, ids, p))]
        if last is None:
            assert abs(values[-2][1] - sk.roc_auc_score(ids, p, multi_class="ovr", average="macro")) < 1e-12
    case(name, "classes", x, y.int(), values)


of_classes("five", 5, 257)
of_classes("two", 2, 101)
of_classes("sharp", 7, 211, sharp=6.0)
of_classes("some_absent", 11, 31, last=6)
of_classes("one_sample", 3, 1)


def of_answers(name, labels, rows, coarse=False):
    x, y = torch.randn(rows, labels) * 2, torch.randint(2, (rows, labels)).float()
    x += y
    if coarse:
        x = (x * 2).round() / 2 + 0.25
    p = torch.sigmoid(x.double())
    ids, named = y.numpy().astype(int), (x > 0).numpy().astype(int)
    matrices = sk.multilabel_confusion_matrix(ids, named) if labels > 1 else sk.confusion_matrix(ids[:, 0], named[:, 0], labels=[0, 1])
    values = [
        ("accuracy", (ids == named).mean()),
        ("confusion_matrix", matrices),
        ("calibration_error", calibration(p.numpy().ravel(), ids.ravel(), 15, binary_calibration_error(p.flatten(), y.flatten().int(), 15, "l1"))),
        ("roc_auc", np.mean([sk.roc_auc_score(ids[:, c], p[:, c]) for c in range(labels)])),
        ("average_precision", np.mean([sk.average_precision_score(ids[:, c], p[:, c]) for c in range(labels)])),
        ("mean_iou", np.mean([sk.jaccard_score(ids[:, c], named[:, c], zero_division=0) for c in range(labels)])),
    ]
    if labels > 1:
        values += list(scores(ids, named))
    else:
        flat = [(w, f(ids[:, 0], named[:, 0])) for w, f in [("precision", sk.precision_score), ("recall", sk.recall_score), ("f1", sk.f1_score)]]
        values += flat
    case(name, "answers", x, y, values)


of_answers("labels", 5, 103)
of_answers("ties", 3, 211, coarse=True)
of_answers("binary", 1, 97)


def of_numbers(name, outputs, rows, offset=0.0):
    y = torch.randn(rows, outputs) * torch.arange(1, outputs + 1) + offset
    x = y + torch.randn(rows, outputs)
    given, wanted = x.double().numpy(), y.double().numpy()
    case(name, "numbers", x, y, [
        ("mae", sk.mean_absolute_error(wanted, given)),
        ("rmse", np.sqrt(sk.mean_squared_error(wanted, given))),
        ("r2", sk.r2_score(wanted, given)),
    ])


of_numbers("one_output", 1, 131)
of_numbers("three_outputs", 3, 67)
of_numbers("far", 2, 101, offset=1000.0)

path = Path(__file__).with_name("metrics.safetensors")
save_file(TENSORS, path, {"cases": json.dumps(CASES)})
print(f"{len(CASES)} cases, {path.stat().st_size} bytes")
