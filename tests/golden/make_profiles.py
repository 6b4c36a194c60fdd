#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the small profiles of tests/golden: make_profiles.py FOLDER.

They are pinned like the objects: what is there stays, and only what is missing is made. `smollm2_cut`
is calibrated on a cut of the real cache in good/smollm2_exact.raw (dims 0 to 15 of head 0), the
others have bases of random numbers. Needs numpy.
"""

import json
import pathlib
import sys

import numpy as np

STYLES = ("none", "interleaved", "neox")
# The first pairs of base 100000, 64 dims.
SMOLLM2_STEPS = [0x28BE60DB9391054A, 0x1C6EA3140B9F22AA, 0x13D7416A896A28AA, 0x0DD875B948B28EAC,
                 0x09A96EB80F7EFAF2, 0x06BE096EB1F3B9DE, 0x04B47B368F3B0D40, 0x0348861DB6FF0BA2]  # fmt: skip
TYPES = {"float32": "F32", "float16": "F16", "int32": "I32"}


def halving_steps(dims):
    return [0x28BE60DB9391054A >> i for i in range(dims // 2)]


def orthonormal(rows, metric):
    """Rows made orthonormal under the metric."""
    out = []
    for row in rows:
        for other in out:
            row = row - (row @ metric @ other) * other
        out.append(row / np.sqrt(row @ metric @ row))
    return np.array(out)


def put_group(tensors, prefix, first_layer, mean, basis, metric, variance, noise):
    scale = np.maximum(np.abs(basis).max(0), 1e-6)
    tensors[prefix + "first_layer"] = np.array([first_layer], np.int32)
    tensors[prefix + "mean"] = mean.astype(np.float32)
    tensors[prefix + "basis"] = (basis / scale).astype(np.float16)
    tensors[prefix + "scale"] = scale.astype(np.float32)
    tensors[prefix + "metric"] = metric.astype(np.float32)
    tensors[prefix + "variance"] = np.maximum(variance, 0).astype(np.float32)
    tensors[prefix + "expected_noise"] = np.asarray(noise, np.float32)


def full_metric(metric, dim):
    """The matrix that a diagonal or blocks stand for."""
    if metric.ndim == 1:
        return np.diag(metric)
    out = np.zeros((len(metric) * dim,) * 2)
    for i, block in enumerate(metric):
        out[i * dim : (i + 1) * dim, i * dim : (i + 1) * dim] = block
    return out


def real_group(x, layers, blocks, components, steps):
    """A group calibrated on x [tokens][channels]; the metric weighs layers by their spread."""
    mean, dim = x.mean(0), x.shape[1] // layers
    centred = x - mean
    if blocks:
        parts = centred.reshape(len(x), layers, dim)
        metric = np.stack([np.linalg.inv(p.T @ p / len(x) + 0.3 * np.eye(dim) * p.var())
                           for p in parts.transpose(1, 0, 2)])  # fmt: skip
        metric = (metric + metric.transpose(0, 2, 1)) / 2
    else:
        metric = np.repeat(1 / centred.reshape(len(x), layers, dim).var((0, 2)), dim)
    full = full_metric(metric, dim)
    root = np.linalg.cholesky(full)  # full = root root^T
    variance, vectors = np.linalg.eigh(root.T @ (centred.T @ centred / len(x)) @ root)
    order = np.argsort(-variance)[:components]
    basis = vectors[:, order].T @ np.linalg.inv(root)
    y = centred @ full @ basis.T
    noise = []
    for step in steps:
        codes = np.sign(y) * np.floor(np.abs(y) / step + 0.4)
        e = centred - codes * step @ basis
        noise.append(np.einsum("ti,ij,tj->", e, full, e) / x.size)
    return mean, basis, metric, variance[order], noise


def random_group(random, channels, dim, blocks, components):
    mean = random.standard_normal(channels)
    if blocks:
        a = random.standard_normal((channels // dim, dim, dim))
        metric = a @ a.transpose(0, 2, 1) + dim * np.eye(dim)
    else:
        metric = np.exp(random.standard_normal(channels))
    basis = orthonormal(random.standard_normal((components, channels)), full_metric(metric, dim))
    return mean, basis, metric, np.ones(components), [0, 0, 0]


def save(path, model, shape, rope, steps, tensors):
    layers, heads, key_dim, value_dim = shape
    style, dims, phase_steps = rope
    tiers = {n: {"step": s, "dead_zone": 0.6, "bits_per_value": 0, "kl": 0}
             for n, s in zip(("high", "balanced", "small"), steps)}  # fmt: skip
    metadata = {
        "kvcodec_profile": "1", "kind": "calibrated", "model": model, "weights": "0" * 64,
        "shape": json.dumps({"layers": layers, "kv_heads": heads, "key_dim": key_dim,
                             "value_dim": value_dim}),
        "rope": json.dumps({"style": STYLES[style], "rotary_dims": dims,
                            "phase_steps": [f"{s:016x}" for s in phase_steps]}),
        "tiers": json.dumps(tiers), "calibration": "{}"}  # fmt: skip
    header, data = {"__metadata__": metadata}, b""
    for name, array in sorted(tensors.items()):
        end = len(data) + array.nbytes
        header[name] = {"dtype": TYPES[str(array.dtype)], "shape": list(array.shape),
                        "data_offsets": [len(data), end]}  # fmt: skip
        data += np.ascontiguousarray(array).tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def turned_back(keys, steps):
    """Keys [layers][tokens][dims] of tokens from 512, un-rotated (interleaved)."""
    turns = np.outer(512 + np.arange(keys.shape[1]), np.array(steps, np.float64) / 2.0**64)
    angle = 2 * np.pi * turns
    z = (keys[..., 0::2] + 1j * keys[..., 1::2]) * np.exp(-1j * angle)
    out = np.empty_like(keys)
    out[..., 0::2], out[..., 1::2] = z.real, z.imag
    return out


def smollm2_cut(folder, path):
    steps = (0.1, 0.5, 1.2)
    raw = np.frombuffer((folder / "good/smollm2_exact.raw").read_bytes(), np.float16)
    cut = raw.reshape(3, 2, 48, 3, 64)[:, :, :, 0, :16].astype(np.float64)
    kinds = turned_back(cut[:, 0], SMOLLM2_STEPS), cut[:, 1]
    tensors = {}
    for name, values, blocks in zip("kv", kinds, (False, True)):
        for g, (first, layers) in enumerate(((0, 2), (2, 1))):
            x = values[first : first + layers].transpose(1, 0, 2).reshape(48, -1)
            put_group(tensors, f"{name}.{g}.", first,
                      *real_group(x, layers, blocks, 12 * layers, steps))  # fmt: skip
    save(path, "a cut of SmolLM2-135M", (3, 1, 16, 16), (1, 16, SMOLLM2_STEPS), steps, tensors)


def random_profile(path, shape, rope, cuts, blocks, seed):
    random = np.random.default_rng(seed)
    layers, heads, key_dim, value_dim = shape
    tensors = {}
    for name, dim in (("k", key_dim), ("v", value_dim)):
        if dim == 0:
            continue
        for g, (first, end) in enumerate(zip(cuts, [*cuts[1:], layers])):
            channels = (end - first) * heads * dim
            put_group(tensors, f"{name}.{g}.", first,
                      *random_group(random, channels, dim, blocks, channels))  # fmt: skip
    save(path, "random", shape, rope, (0.05, 0.2, 1.0), tensors)


def main():
    folder = pathlib.Path(sys.argv[1])

    def missing(name):
        path = folder / "profiles" / f"{name}.safetensors"
        return None if path.exists() else path

    (folder / "profiles").mkdir(exist_ok=True)
    if path := missing("smollm2_cut"):
        smollm2_cut(folder, path)
    if path := missing("neox_partial"):
        random_profile(path, (2, 2, 12, 8), (2, 8, halving_steps(8)), [0, 1], True, 1)
    if path := missing("no_values"):
        random_profile(path, (3, 1, 20, 0), (0, 0, []), [0], False, 2)


if __name__ == "__main__":
    main()
