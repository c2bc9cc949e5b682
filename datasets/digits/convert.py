"""Converts scikit-learn's digits.csv.gz to the two IDX files of this folder.

    python convert.py path/to/sklearn/datasets/data/digits.csv.gz

A row of the CSV is 64 pixels (0 to 16, row by row) and the digit.
"""

import csv
import gzip
import struct
import sys
from pathlib import Path

SIDE = 8
UNSIGNED_BYTE = 0x08


def idx(dims, values):
    """An IDX file: two zeros, element type, number of axes, sizes (big-endian), elements."""
    return struct.pack(f">BBBB{len(dims)}I", 0, 0, UNSIGNED_BYTE, len(dims), *dims) + bytes(values)


def main():
    with gzip.open(sys.argv[1], "rt", newline="") as file:
        rows = [[int(float(cell)) for cell in row] for row in csv.reader(file)]
    if any(len(row) != SIDE * SIDE + 1 for row in rows):
        sys.exit("every row must have 64 pixels and a label")
    pixels = [value for row in rows for value in row[:-1]]
    labels = [row[-1] for row in rows]
    if not (set(pixels) <= set(range(17)) and set(labels) <= set(range(10))):
        sys.exit("pixels must be 0 to 16 and labels 0 to 9")
    folder = Path(__file__).parent
    (folder / "images.idx3-ubyte").write_bytes(idx([len(rows), SIDE, SIDE], pixels))
    (folder / "labels.idx1-ubyte").write_bytes(idx([len(rows)], labels))
    print(f"{len(rows)} digits")


if __name__ == "__main__":
    main()
