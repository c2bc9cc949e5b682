"""Events as TensorBoard's own package writes them, at a fixed time: tests/records.rs holds the
program's to the same bytes. Run with tensorboard 2.x: python events.py"""

import os
import struct

import numpy as np
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

TIME = 1700000000.25
values = np.array([0.0, -1.5, 0.25, 0.25, 3.0, 1e-13, 1000.0], np.float32)

limits, limit = [], 1e-12
while limit < 1e20:
    limits.append(limit)
    limit *= 1.1
limits = [-x for x in reversed(limits)] + [0.0] + limits + [np.finfo(np.float64).max]
counts = np.bincount(np.searchsorted(limits, values.astype(np.float64), side="left"), minlength=len(limits))
first, last = np.nonzero(counts)[0][[0, -1]]
first = max(first - 1, 0)
wide = values.astype(np.float64)
histogram = summary_pb2.HistogramProto(
    min=wide.min(), max=wide.max(), num=len(wide), sum=sum(wide), sum_squares=sum(wide * wide),
    bucket_limit=limits[first:last + 1], bucket=counts[first:last + 1])

text = summary_pb2.Summary.Value(
    tag="config/text_summary",
    metadata=summary_pb2.SummaryMetadata(plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="text")),
    tensor=tensor_pb2.TensorProto(
        dtype=types_pb2.DT_STRING, string_val=[b"    version: 1"],
        tensor_shape=tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=1)])))

Value, Summary, Event = summary_pb2.Summary.Value, summary_pb2.Summary, event_pb2.Event
events = [
    Event(wall_time=TIME, file_version="brain.Event:2"),
    Event(wall_time=TIME, step=301, session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START)),
    Event(wall_time=TIME, step=300, summary=Summary(value=[text])),
    Event(wall_time=TIME, step=301, summary=Summary(value=[
        Value(tag="train/loss", simple_value=0.625), Value(tag="lr", simple_value=0.0)])),
    Event(wall_time=TIME, step=301, summary=Summary(value=[Value(tag="weights/0.weight", histo=histogram)])),
]
with open(os.path.join(os.path.dirname(__file__), "events.tfrecord"), "wb") as out:
    for event in events:
        data = event.SerializeToString(deterministic=True)
        length = struct.pack("<Q", len(data))
        out.write(length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data)))
