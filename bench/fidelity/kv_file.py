# SPDX-License-Identifier: Apache-2.0
"""KV caches as `kvcodec eval --dump` writes them, and back for `external:NAME=FOLDER`."""

import dataclasses
import json
import os
import pathlib
import struct

import numpy as np

TYPES = {"F16": np.float16, "F32": np.float32, "I32": np.int32}


@dataclasses.dataclass
class Rope:
    """How keys are rotated: pair i of a key at position p by p * steps[i] / 2^64 of a turn."""

    style: str  # "none", "interleaved" or "neox"
    dims: int
    steps: np.ndarray  # uint64 of [dims / 2]

    @staticmethod
    def parse(text):
        value = json.loads(text)
        steps = np.array([int(s, 16) for s in value["phase_steps"]], np.uint64)
        if value["style"] not in ("none", "interleaved", "neox") or 2 * len(steps) != value["rotary_dims"]:
            raise ValueError(f"rope: expected a known style and rotary_dims / 2 steps, found {text}")
        return Rope(value["style"], value["rotary_dims"], steps)

    def turn(self, keys, sign):
        """keys [layers, tokens, heads, dim] of positions 0.. turned by their positions (sign 1: as
        the engine does; -1: back). Returns float32."""
        out = np.array(keys, np.float32)
        if self.style == "none":
            return out
        positions = np.arange(keys.shape[1], dtype=np.uint64)[:, None]
        turns = (positions * self.steps).astype(np.float64) / 2.0**64  # product mod 2^64: whole turns drop out
        angle = sign * 2 * np.pi * turns[:, None, :]
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        half = self.dims // 2
        if self.style == "neox":
            a, b = out[..., :half].copy(), out[..., half : self.dims].copy()
            out[..., :half], out[..., half : self.dims] = a * cos - b * sin, a * sin + b * cos
        else:
            a, b = out[..., 0 : self.dims : 2].copy(), out[..., 1 : self.dims : 2].copy()
            out[..., 0 : self.dims : 2], out[..., 1 : self.dims : 2] = a * cos - b * sin, a * sin + b * cos
        return out


@dataclasses.dataclass
class Cache:
    """One case. key and value: [layers, tokens, heads, dim], keys rotated as the engine has them."""

    key: np.ndarray
    value: np.ndarray
    tokens: np.ndarray
    metadata: dict

    @property
    def rope(self):
        return Rope.parse(self.metadata["rope"])

    @property
    def values(self):
        return self.key.size + self.value.size


def read(path):
    data = pathlib.Path(path).read_bytes()
    if len(data) < 8:
        raise ValueError(f"{path}: {len(data)} bytes are too few for safetensors")
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])

    def tensor(name):
        entry = header[name]
        begin, end = entry["data_offsets"]
        array = np.frombuffer(data[8 + length + begin : 8 + length + end], TYPES[entry["dtype"]])
        return array.reshape(entry["shape"])

    cache = Cache(tensor("key"), tensor("value"), tensor("tokens"), header.get("__metadata__", {}))
    if cache.key.ndim != 4 or cache.key.shape[:3] != cache.value.shape[:3]:
        raise ValueError(f"{path}: key {cache.key.shape} and value {cache.value.shape} do not fit")
    return cache


def write(path, cache, key, value, bits):
    """Writes what a method restores, as the cache's own type, with its size."""
    if key.shape != cache.key.shape or value.shape != cache.value.shape:
        raise ValueError(f"{path}: expected {cache.key.shape} and {cache.value.shape}, "
                         f"found {key.shape} and {value.shape}")
    header = {"__metadata__": {**cache.metadata, "bits": str(int(np.ceil(bits)))}}
    parts, offset = [], 0
    names = {v: k for k, v in TYPES.items()}
    arrays = {"key": key.astype(cache.key.dtype), "value": value.astype(cache.value.dtype), "tokens": cache.tokens}
    for name, array in arrays.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": names[array.dtype.type], "shape": list(array.shape),
                        "data_offsets": [offset, offset + len(raw)]}
        parts.append(raw)
        offset += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    temporary = f"{path}.tmp"
    with open(temporary, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for raw in parts:
            file.write(raw)
    os.replace(temporary, path)
