# SPDX-License-Identifier: Apache-2.0
"""What format version 2 adds: groups, and the calibrated tiers."""

import struct
from dataclasses import dataclass

import numpy as np

import profile_ref
from ref_errors import check

GROUP = 40
K, V = 0, 1


@dataclass
class Group:
    """Version 2: layers that share a basis."""

    kind: int
    first_layer: int
    layers: int
    components: int
    live_rows: int
    step: float
    delta: tuple
    noise: float
    relative_error: float


def read_groups(data, header, at, own):
    """The groups at an offset; docs/format.md, "Header, arrays". own: (kind, layers) of "Layout"."""
    h, layer = header, [0, 0]
    for i in range(h.group_count):
        kind, z0, z1, z2, *rest = struct.unpack_from("<BBBBIIIIfffff", data, at + GROUP * i)
        first, layers, components, live, step, d0, d1, noise, error = rest
        group = Group(kind, first, layers, components, live, np.float32(step),
                      (np.float32(d0), np.float32(d1)), noise, error)  # fmt: skip

        def must(name, condition, offset, value, i=i):
            check(condition, f"groups[{i}].{name}", at + GROUP * i + offset, "what fits", value)

        least = h.groups[-1].kind if h.groups else 0
        must("kind", least <= kind <= (1 if h.value_dim > 0 else 0), 0, kind)
        must("zero", (z0, z1, z2) == (0, 0, 0), 1, (z0, z1, z2))
        must("first_layer", first == layer[kind], 4, first)
        must("layers", 1 <= layers <= h.layers - first, 8, layers)
        layer[kind] += layers
        channels, identity = layers * h.channels(kind), h.basis == 1
        must("components", (channels if identity else 1) <= components <= channels, 12, components)
        must("live_rows", (components if identity else 0) <= live <= components, 16, live)
        must("step", step == 0 if identity else np.isfinite(step) and step > 0, 20, step)
        for j, delta in enumerate((d0, d1)):
            must("delta", abs(delta) <= (0 if identity else 1), 24 + 4 * j, delta)
        must("noise", np.isfinite(noise) and noise >= 0, 32, noise)
        must("relative_error", np.isfinite(error) and error >= 0, 36, error)
        h.groups.append(group)
    for kind in (K, V):
        if h.channels(kind) > 0:
            check(layer[kind] == h.layers, "group_count", 172, f"{h.layers} layers", layer[kind])
    if h.basis == 1:
        found = [(g.kind, g.layers) for g in h.groups]
        check(own == found, "groups", at, own, found)


def live_row(header, kind, row):
    """Whether a component row has a sample."""
    for g in header.groups:
        if g.kind == kind:
            if row < g.components:
                return row < g.live_rows
            row -= g.components
    return False


def codes_of(header, kind, samples):
    codes = samples.astype(np.int64) - 128
    for e_kind, row, token, code in header.escapes:
        if e_kind == kind:
            codes[row, token] = code
    return codes


def restore_calibrated(header, kind, codes, profile):
    """Steps 1 to 3 of "Calibrated tiers", basis 0: binary32 in natural order."""
    h, parts, row = header, [], 0
    for g, own in zip(h.groups, profile.groups):
        if g.kind != kind:
            continue
        code = codes[row : row + g.live_rows]
        row += g.components
        delta = np.where(np.abs(code) == 1, g.delta[0], g.delta[1]).astype(np.float32)
        y = (np.abs(code).astype(np.float32) + delta) * g.step
        y = np.where(code == 0, np.float32(0), np.sign(code).astype(np.float32) * y)
        x = np.repeat(own.mean[:, None] + np.float32(0), h.tokens, axis=1)
        for c in range(g.live_rows):
            x = profile_ref.fused_multiply_add(own.basis[c][:, None], y[c][None, :], x)
        parts.append(x)
    return np.concatenate(parts)


def check_profile(header, profile):
    h = header
    check(h.profile == profile.digest, "profile", 88, profile.digest.hex(), h.profile.hex())
    shape = h.layers, h.kv_heads, h.key_dim, h.value_dim
    check(shape == profile.shape, "shape", 128, profile.shape, shape)
    rope = h.rope_style, h.rotary_dims, [int(s) for s in h.phase_steps]
    check(rope == profile.rope, "rope", 146, profile.rope, rope)
    groups = [(g.kind, g.layers, g.components) for g in h.groups]
    own = [(g.kind, g.layers, len(g.basis)) for g in profile.groups]
    check(groups == own, "groups", 176, own, groups)
