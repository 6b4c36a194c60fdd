# SPDX-License-Identifier: Apache-2.0
"""Profiles of the calibrated tiers, read as docs/profile.md says, and the arithmetic they need."""

import hashlib
import json
import struct
from dataclasses import dataclass

import numpy as np

TYPES = {"F32": np.float32, "F16": np.float16, "I32": np.int32}
STYLES = ("none", "interleaved", "neox")


@dataclass
class ProfileGroup:
    kind: int  # 0 keys, 1 values
    layers: int
    mean: np.ndarray
    basis: np.ndarray  # S, [components][channels]


@dataclass
class Profile:
    digest: bytes
    shape: tuple  # layers, kv_heads, key_dim, value_dim
    rope: tuple  # style, rotary_dims, phase_steps
    groups: list


def load(path):
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack_from("<Q", data)
    header, start = json.loads(data[8 : 8 + length]), 8 + length
    meta = header.pop("__metadata__")

    def tensor(name):
        entry = header[name]
        begin, end = entry["data_offsets"]
        flat = np.frombuffer(data[start + begin : start + end], TYPES[entry["dtype"]])
        return flat.reshape(entry["shape"])

    s = json.loads(meta["shape"])
    shape = s["layers"], s["kv_heads"], s["key_dim"], s["value_dim"]
    r = json.loads(meta["rope"])
    style = STYLES.index(r["style"])
    rope = (style, r["rotary_dims"] if style else 0, [int(x, 16) for x in r["phase_steps"]] if style else [])
    groups = []
    for kind, dim in ((0, shape[2]), (1, shape[3])):
        index = 0
        while f"{'kv'[kind]}.{index}.mean" in header:
            prefix = f"{'kv'[kind]}.{index}."
            mean = tensor(prefix + "mean")
            basis = tensor(prefix + "basis").astype(np.float32) * tensor(prefix + "scale")
            groups.append(ProfileGroup(kind, len(mean) // (shape[1] * dim), mean, basis))
            index += 1
    return Profile(hashlib.sha256(data).digest(), shape, rope, groups)


def fused_multiply_add(a, b, x):
    """a * b + x of binary32 numbers, rounded once.

    The product is exact in binary64. The sum is rounded to odd there (Boldo and Melquiond,
    "Emulation of FMA and correctly rounded sums", 2008), after which rounding to binary32 is right.
    """
    product = a.astype(np.float64) * b.astype(np.float64)
    x = x.astype(np.float64)
    total = product + x
    back = total - product  # 2Sum: what rounding lost
    lost = (product - (total - back)) + (x - back)
    bits = total.view(np.int64)
    # The neighbour towards what was lost, where something was and the last bit is even.
    away = (lost > 0) == (total > 0)
    odd = np.where((lost != 0) & (bits & 1 == 0), bits + np.where(away, 1, -1), bits)
    return odd.view(np.float64).astype(np.float32)
