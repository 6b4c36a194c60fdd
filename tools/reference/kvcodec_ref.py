#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A slow, independent decoder of KVCodec chunks, written from docs/format.md alone.

    kvcodec_ref.py FILE --info
    kvcodec_ref.py FILE -o out.npy      [layer][K|V][token][head][dim]; out.k.npy and out.v.npy
                                        where heads of K and V differ; bf16 as uint16
    kvcodec_ref.py FILE -o out.raw      the same elements as bytes, canonical order
    --profile PROFILE                   for the calibrated tiers, see profile_ref.py

Needs numpy and xxhash, and for pictures the ffmpeg program or PyAV. Shares no code with the
library, and is a test of it and of the document. Exit status: 0, or 1 usage, 3 corrupt, 4
unsupported, as the library's error codes.
"""

import argparse
import pathlib
import struct
import sys
from dataclasses import dataclass, field

import numpy as np
import xxhash

import hevc_stream
import profile_ref
from calibrated_ref import (GROUP, check_profile, codes_of, live_row, read_groups,
                            restore_calibrated)  # fmt: skip
from ref_errors import Corrupt, Unsupported, check

MAGIC = bytes.fromhex("894B56430D0A1A0A")
FIXED, ESCAPE, PICTURE, CHECKSUM = 176, 16, 52, 8
EXACT, INT8 = 1, 2
K, V = 0, 1
DTYPES = {1: ("f16", np.uint16), 2: ("bf16", np.uint16), 3: ("f32", np.uint32)}
LIMIT_BYTES = 4 << 30


@dataclass
class Picture:
    kind: int
    plane: int  # 0 symbols, 1 low bits
    first_row: int
    rows: int
    width: int
    height: int
    coding: int = 0
    offset: int = 0
    bytes: int = 0
    payload_checksum: int = 0
    content_checksum: int = 0


@dataclass
class Header:
    """The fields of docs/format.md by their names; arrays of K and V are pairs."""

    values: dict = field(default_factory=dict)
    groups: list = field(default_factory=list)
    row_keys: list = field(default_factory=list)
    steps: list = field(default_factory=list)
    row_offsets: list = field(default_factory=list)
    escapes: list = field(default_factory=list)
    pictures: list = field(default_factory=list)
    phase_steps: np.ndarray = None
    sinks: bytes = b""

    def __getattr__(self, name):
        try:
            return self.__dict__["values"][name]
        except KeyError:
            raise AttributeError(name) from None

    def head_dim(self, kind):
        return self.value_dim if kind == V else self.key_dim

    def channels(self, kind):
        return self.kv_heads * self.head_dim(kind)

    def has_basis(self):
        return self.version == 2 and self.basis == 0

    def layout_rows(self, kind):
        """Components where rows are those, else natural rows."""
        if self.has_basis():
            return sum(g.components for g in self.groups if g.kind == kind)
        return self.rows(kind)

    def rows(self, kind):
        return self.layers * self.channels(kind)

    def element_bytes(self):
        return 4 if self.dtype == 3 else 2

    def token_bytes(self):
        return self.layers * (self.channels(K) + self.channels(V)) * self.element_bytes()

    def symbol_bits(self, kind):
        return 5 + self.symbol_mantissa_bits[kind] if self.dtype == 1 else 8

    def low_bits(self, kind):
        return 8 * self.element_bytes() - self.symbol_bits(kind)


# (name, struct format, offset); docs/format.md, "Header, fixed part".
FIXED_FIELDS = [
    ("version", "H", 8), ("tier", "H", 10), ("header_bytes", "I", 12), ("object_bytes", "Q", 16),
    ("namespace", "32s", 24), ("key", "32s", 56), ("profile", "32s", 88),
    ("first_token", "I", 120), ("tokens", "I", 124), ("layers", "I", 128), ("kv_heads", "I", 132),
    ("key_dim", "I", 136), ("value_dim", "I", 140), ("dtype", "H", 144), ("rope_style", "B", 146),
    ("basis", "B", 147), ("rotary_dims", "I", 148), ("sink_tokens", "I", 152), ("max_picture_height", "I", 156),
    ("picture_count", "I", 160), ("escape_count", "I", 164), ("group_count", "I", 172)]  # fmt: skip


def checksum_of(data):
    return xxhash.xxh3_64_intdigest(bytes(data))


def read_prefix(data):
    for i, byte in enumerate(MAGIC[: len(data)]):
        check(data[i] == byte, "magic", i, f"{byte:02x}", f"{data[i]:02x}")
    check(len(data) >= FIXED + GROUP + CHECKSUM, "object size", len(data), "a header", "its end")
    version, header_bytes, object_bytes = (
        struct.unpack_from("<H", data, 8)[0],
        struct.unpack_from("<I", data, 12)[0],
        struct.unpack_from("<Q", data, 16)[0],
    )
    if version > 2:
        raise Unsupported(f"version at offset 8: expected at most 2, found {version}")
    check(version >= 1, "version", 8, "1 or 2", version)
    least = FIXED + CHECKSUM + (PICTURE if version == 1 else GROUP)
    check(least <= header_bytes <= object_bytes, "header_bytes", 12,
          f"{least} to object_bytes {object_bytes}", header_bytes)  # fmt: skip
    check(len(data) >= header_bytes, "object size", len(data), f"a header of {header_bytes}", "its end")
    at = header_bytes - CHECKSUM
    expected, found = checksum_of(data[:at]), struct.unpack_from("<Q", data, at)[0]
    check(found == expected, "header_checksum", at, f"{expected:016x}", f"{found:016x}")


def read_fixed(data):
    header = Header()
    for name, code, offset in FIXED_FIELDS:
        header.values[name] = struct.unpack_from("<" + code, data, offset)[0]
    header.values["symbol_mantissa_bits"] = data[168], data[169]
    h = header

    def must(name, low, high):
        offset = next(o for n, _, o in FIXED_FIELDS if n == name)
        value = h.values[name]
        check(low <= value <= high, name, offset, f"{low} to {high}", value)

    if h.version == 1:
        must("tier", 1, 2)
        must("basis", 0, 0)
        must("group_count", 0, 0)
    else:
        must("tier", 3, 5)
        must("basis", 0, 1)
        check(any(h.profile), "profile", 88, "a digest", "zeros")
    must("object_bytes", h.header_bytes, LIMIT_BYTES)
    must("tokens", 1, 8192)
    must("first_token", 0, 2**32 - 1 - h.tokens)
    must("layers", 1, 65536)
    must("kv_heads", 1, 65536)
    must("key_dim", 1, 65536)
    must("value_dim", 0, 65536)
    must("dtype", 1, 3)
    for kind in (K, V):
        check(h.rows(kind) <= 2**24, "rows", 128, "at most 2^24", h.rows(kind))
    decoded = h.token_bytes() * h.tokens
    check(decoded <= LIMIT_BYTES, "decoded size", 124, f"at most {LIMIT_BYTES}", decoded)
    must("rope_style", 0, 2)
    if h.rope_style == 0:
        must("rotary_dims", 0, 0)
    else:
        must("rotary_dims", 2, h.key_dim)
        check(h.rotary_dims % 2 == 0, "rotary_dims", 148, "an even number", h.rotary_dims)
    must("sink_tokens", 0, 0 if h.tier == EXACT else h.tokens)
    must("max_picture_height", 144, 8192)
    check(h.max_picture_height % 8 == 0, "max_picture_height", 156, "8 n", h.max_picture_height)
    if h.tier == EXACT:
        must("escape_count", 0, 0)
    for kind in (K, V):
        split = h.tier == EXACT and h.dtype == 1 and h.channels(kind) > 0
        bits = h.symbol_mantissa_bits[kind]
        check(bits <= (3 if split else 0), "symbol_mantissa_bits", 168 + kind, "0 to 3, or 0", bits)
    if h.version == 2:
        kinds = 2 if h.value_dim > 0 else 1
        must("group_count", kinds, kinds * h.layers)
    for offset in (170, 171):
        check(data[offset] == 0, "zero", offset, 0, data[offset])
    return header


def round_up(n, step):
    return (n + step - 1) // step * step


def groups_of(header, kind):
    """(first row, rows) of each group of rows that are sorted together."""
    channels = header.channels(kind)
    if channels == 0:
        return []
    layers = max(1, header.max_picture_height // channels)
    return [
        (first * channels, min(layers, header.layers - first) * channels)
        for first in range(0, header.layers, layers)
    ]


def count_pictures(header):
    if header.has_basis():
        return sum(-(-g.live_rows // header.max_picture_height) for g in header.groups)
    pieces = 0
    for kind in (K, V):
        channels = header.channels(kind)
        if channels > 0:
            layers = max(1, header.max_picture_height // channels)
            groups = -(-header.layers // layers)
            pieces += groups * -(-channels // header.max_picture_height)
    return pieces * (2 if header.tier == EXACT else 1)


def pictures_of(header):
    """The pictures that "Layout" gives."""
    pictures = []
    for kind in (K, V):
        groups = groups_of(header, kind)
        if header.has_basis():
            own, groups, first = [g for g in header.groups if g.kind == kind], [], 0
            for g in own:
                groups.append((first, g.live_rows))
                first += g.components
        for first, rows in groups:
            for start in range(0, rows, header.max_picture_height):
                n = min(header.max_picture_height, rows - start)
                width = max(144, round_up(header.tokens, 8))
                height = max(144, round_up(n, 8))
                pictures.append(Picture(kind, 0, first + start, n, width, height))
                if header.tier == EXACT:
                    pictures.append(Picture(kind, 1, first + start, n, 0, 0))
    return pictures


def read_arrays(data, header):
    h = header
    if h.version == 1:
        count = count_pictures(h)
        check(h.picture_count == count, "picture_count", 160, count, h.picture_count)
    all_rows, kinds = h.rows(K) + h.rows(V), [K] + [V] * (h.value_dim > 0)
    size = FIXED + 8 * (h.rotary_dims // 2) + GROUP * h.group_count
    plain = h.version == 1 or h.basis == 1  # natural rows, with keys
    if plain:
        size += all_rows
    if plain and h.tier != EXACT:
        size += 4 * h.layers * len(kinds) + 2 * all_rows
    size += h.sink_tokens * h.token_bytes()
    size += ESCAPE * h.escape_count + PICTURE * h.picture_count + CHECKSUM
    check(h.header_bytes == size, "header_bytes", 12, size, h.header_bytes)

    at = FIXED

    def take(dtype, n):
        nonlocal at
        array = np.frombuffer(data, dtype, n, at)
        at += array.nbytes
        return array

    h.phase_steps = take("<u8", h.rotary_dims // 2)
    if h.version == 2:
        own = [(kind, n // h.channels(kind)) for kind in (K, V) for _, n in groups_of(h, kind)]
        read_groups(data, h, at, own)
        at += GROUP * h.group_count
        count = count_pictures(h)
        check(h.picture_count == count, "picture_count", 160, count, h.picture_count)
    if plain:
        h.row_keys = [take("u1", h.rows(kind)) for kind in (K, V)]
    if plain and h.tier != EXACT:
        for kind in kinds:
            start = at
            steps = take("<f4", h.layers)
            for layer, step in enumerate(steps):
                good = np.isfinite(step) and step > 0
                check(good, f"steps[{kind}][{layer}]", start + 4 * layer, "above 0", step)
            h.steps.append(steps)
        h.row_offsets = [take("<i2", h.rows(kind)) for kind in (K, V)]
    h.sinks = take("u1", h.sink_tokens * h.token_bytes()).tobytes()
    for i in range(h.escape_count):
        kind, row, token, code = escape = struct.unpack_from("<IIIi", data, at)
        check(kind <= 1, f"escapes[{i}].kind", at, "0 or 1", kind)
        good = row < h.rows(kind) if plain else live_row(h, kind, row)
        check(good, f"escapes[{i}].row", at + 4, "a row that has samples", row)
        check(h.sink_tokens <= token < h.tokens, f"escapes[{i}].token", at + 8, "a token", token)
        check(abs(code) > 127, f"escapes[{i}].code", at + 12, "beyond 127", code)
        check(i == 0 or h.escapes[-1][:3] < escape[:3], f"escapes[{i}]", at, "ascending", escape)
        h.escapes.append(escape)
        at += ESCAPE
    read_index(data, h, at)


def read_index(data, header, at):
    h = header
    end = h.header_bytes
    for i, picture in enumerate(pictures_of(h)):
        kind, plane, coding, zero, *place = struct.unpack_from("<BBBBIIII", data, at)
        found = [kind, plane, *place]
        derived = [picture.kind, picture.plane, picture.first_row, picture.rows, picture.width,
                   picture.height]  # fmt: skip
        check(found == derived, f"pictures[{i}]", at, derived, found)
        check(coding <= (0 if plane else 2), f"pictures[{i}].coding", at + 2, "0 to 2, or 0", coding)
        check(zero == 0, f"pictures[{i}].zero", at + 3, 0, zero)
        picture.coding = coding
        picture.offset, picture.bytes, picture.payload_checksum, picture.content_checksum = (
            struct.unpack_from("<QQQQ", data, at + 20))  # fmt: skip
        check(picture.offset == end, f"pictures[{i}].offset", at + 20, end, picture.offset)
        raw = picture.rows * (low_row_bytes(h, kind) if plane else h.tokens)
        if coding == 0:
            check(picture.bytes == raw, f"pictures[{i}].bytes", at + 28, raw, picture.bytes)
            check(picture.content_checksum == picture.payload_checksum,
                  f"pictures[{i}].content_checksum", at + 44, "the payload's", "another")  # fmt: skip
        else:
            check(0 < picture.bytes < raw, f"pictures[{i}].bytes", at + 28, f"1 to {raw - 1}",
                  picture.bytes)  # fmt: skip
        end += picture.bytes
        check(end <= h.object_bytes, f"pictures[{i}].bytes", at + 28, "inside the object", picture.bytes)
        h.pictures.append(picture)
        at += PICTURE
    check(end == h.object_bytes, "object_bytes", 16, end, h.object_bytes)


def low_row_bytes(header, kind):
    n = header.low_bits(kind)
    return n // 8 * header.tokens + (n % 8 * header.tokens + 7) // 8


def read_header(data):
    read_prefix(data)
    header = read_fixed(data)
    read_arrays(data, header)
    return header


def read_content(data, picture, index, header, decoder):
    """A picture's payload, checked; of symbols the samples [rows][tokens]."""
    payload = data[picture.offset : picture.offset + picture.bytes]
    found = checksum_of(payload)
    place = f"picture {index} at offset {picture.offset}"
    if found != picture.payload_checksum:
        raise Corrupt(f"{place}: checksum of its payload is wrong")
    if picture.plane == 1:
        return payload
    if picture.coding == 0:
        return np.frombuffer(payload, np.uint8).reshape(picture.rows, header.tokens)
    if decoder is None:
        raise Unsupported("pictures need the ffmpeg program or the PyAV package")
    stream = hevc_stream.stream_of(payload, picture.width, picture.height, picture.coding == 2)
    try:
        samples = decoder(stream, picture.width, picture.height)
    except Exception as error:  # whatever a video tool says of bad bytes
        raise Corrupt(f"{place}: {error}") from error
    samples = np.ascontiguousarray(samples[: picture.rows, : header.tokens])
    if checksum_of(samples.tobytes()) != picture.content_checksum:
        raise Corrupt(f"{place}: checksum of its samples is wrong")
    return samples


def natural_rows(header, kind):
    """natural_rows(...)[i] is the natural row, or component, that layout row i is."""
    if header.has_basis():
        return np.arange(header.layout_rows(kind))
    keys = header.row_keys[kind]
    order = [
        first + np.argsort(keys[first : first + rows], kind="stable")
        for first, rows in groups_of(header, kind)
    ]
    return np.concatenate(order) if order else np.zeros(0, np.int64)


def unpack_low_bits(payload, header, kind, rows):
    """Low bits of [rows][tokens] elements as uint64."""
    n, tokens = header.low_bits(kind), header.tokens
    data = np.frombuffer(payload, np.uint8).reshape(rows, low_row_bytes(header, kind))
    low = np.zeros((rows, tokens), np.uint64)
    for j in range(n // 8):
        low |= data[:, j * tokens : (j + 1) * tokens].astype(np.uint64) << np.uint64(8 * j)
    m = n % 8
    if m:
        bits = np.unpackbits(data[:, n // 8 * tokens :], axis=1, bitorder="little")
        bits = bits[:, : m * tokens].reshape(rows, tokens, m).astype(np.uint64)
        for b in range(m):
            low |= bits[:, :, b] << np.uint64(8 * (n // 8) + b)
    return low


def offset_of_sample():
    """docs/format.md, "Tier exact": the offset from the centre that each sample stands for."""
    below, above = list(range(-3, -129, -1)), list(range(3, 128))
    order = [0, 1, -1, -2, 2]
    while below:
        order += below[:3] + above[:1]
        del below[:3], above[:1]
    order += above
    offsets = np.zeros(256, np.int64)
    for i, offset in enumerate(order):
        offsets[(128 + (i + 1) // 2) % 256 if i % 2 else 128 - i // 2] = offset
    return offsets


def restore_exact(header, kind, samples, low):
    """Elements [rows][tokens] as unsigned bits, natural order. `samples` and `low` are in it too."""
    width, s_bits, n = 8 * header.element_bytes(), header.symbol_bits(kind), header.low_bits(kind)
    centre = header.row_keys[kind].astype(np.int64)
    if header.dtype == 1:
        centre >>= 3 - header.symbol_mantissa_bits[kind]
    symbol = (offset_of_sample()[samples] + centre[:, None]) % 2**s_bits
    rotated = (symbol.astype(np.uint64) << np.uint64(n)) | low
    element = rotated >> np.uint64(1) | (rotated & np.uint64(1)) << np.uint64(width - 1)
    return element.astype(DTYPES[header.dtype][1])


def turns(header):
    """Cosine and sine, binary32 [rotary_dims / 2][tokens]; docs/format.md, "Rotation"."""
    position = np.uint64(header.first_token) + np.arange(header.tokens, dtype=np.uint64)
    phase = header.phase_steps[:, None] * position[None, :]
    q = phase + np.uint64(2**61) >> np.uint64(62)
    r = (phase - (q << np.uint64(62))).view(np.int64)
    x = (r >> 8).astype(np.float64) * float.fromhex("0x1.921fb54442d18p-54")
    z = x * x
    p = np.full_like(x, float.fromhex("0x1.6124613a86d09p-33"))
    for c in ("-0x1.ae64567f544e4p-26", "0x1.71de3a556c734p-19", "-0x1.a01a01a01a01ap-13",
              "0x1.1111111111111p-7", "-0x1.5555555555555p-3"):  # fmt: skip
        p = float.fromhex(c) + z * p
    sine = (x + (x * z) * p).astype(np.float32)
    p = np.full_like(x, float.fromhex("-0x1.93974a8c07c9dp-37"))
    for c in ("0x1.1eed8eff8d898p-29", "-0x1.27e4fb7789f5cp-22", "0x1.a01a01a01a01ap-16",
              "-0x1.6c16c16c16c17p-10", "0x1.5555555555555p-5", "-0x1.0000000000000p-1"):  # fmt: skip
        p = float.fromhex(c) + z * p
    cosine = (1 + z * p).astype(np.float32)
    return (np.choose(q.astype(int), [cosine, -sine, -cosine, sine]),
            np.choose(q.astype(int), [sine, cosine, -sine, -cosine]))  # fmt: skip


def to_elements(x, dtype):
    """binary32 to the bits of dtype: to nearest even, saturating, NaN to +0."""
    x = np.where(np.isnan(x), np.float32(0), x)
    if dtype == 1:
        with np.errstate(over="ignore"):
            y = x.astype(np.float16)
        return np.where(np.isinf(y), np.copysign(np.float16(65504), y), y).view(np.uint16)
    x = np.where(np.isinf(x), np.copysign(np.finfo(np.float32).max, x), x)
    bits = x.view(np.uint32)
    if dtype == 3:
        return bits
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    infinite = rounded & 0x7FFF == 0x7F80
    return np.where(infinite, rounded - 1, rounded).astype(np.uint16)


def restore_int8(header, kind, samples):
    h = header
    codes = codes_of(h, kind, samples)
    steps = np.repeat(h.steps[kind], h.channels(kind))
    x = (codes + h.row_offsets[kind][:, None]).astype(np.float32) * steps[:, None]
    return turn_and_convert(h, kind, x)


def turn_and_convert(header, kind, x):
    """Steps 3 and 4 of "Tier int8"."""
    h = header
    if kind == K and h.rope_style != 0:
        half = h.rotary_dims // 2
        pairs = np.arange(half)
        first, second = (2 * pairs, 2 * pairs + 1) if h.rope_style == 1 else (pairs, pairs + half)
        cosine, sine = turns(h)
        heads = x.reshape(h.layers * h.kv_heads, h.key_dim, h.tokens)
        x0, x1 = heads[:, first], heads[:, second]
        with np.errstate(over="ignore", invalid="ignore"):
            heads[:, first], heads[:, second] = x0 * cosine - x1 * sine, x0 * sine + x1 * cosine
        x = heads.reshape(x.shape)
    return to_elements(x, h.dtype)


def sinks_of(header, kind):
    """[layer][token][head][dim] of the sink tokens."""
    h = header
    elements = np.frombuffer(h.sinks, DTYPES[h.dtype][1]).reshape(h.layers, -1)
    keys = h.sink_tokens * h.channels(K)
    part = elements[:, keys:] if kind == V else elements[:, :keys]
    return part.reshape(h.layers, h.sink_tokens, h.kv_heads, h.head_dim(kind))


def decode(data, expected=None, profile=None):
    """The header, and [K elements, V elements], each [layer][token][head][dim] as unsigned bits.

    `expected`: (namespace, key, first_token) that the chunk must be.
    """
    h = read_header(data)
    check(len(data) == h.object_bytes, "object size", len(data), h.object_bytes, len(data))
    if expected is not None:
        for name, want in zip(("namespace", "key", "first_token"), expected):
            check(h.values[name] == want, name, 24, want, h.values[name])
    if h.has_basis():
        if profile is None:
            raise Unsupported(f"the object needs profile {h.profile.hex()}")
        check_profile(h, profile)
    decoder = hevc_stream.find_decoder()
    samples = [np.full((h.layout_rows(kind), h.tokens), 128, np.uint8) for kind in (K, V)]
    low = [np.zeros((h.rows(kind), h.tokens), np.uint64) for kind in (K, V)]
    order = [natural_rows(h, kind) for kind in (K, V)]
    for index, picture in enumerate(h.pictures):
        content = read_content(data, picture, index, h, decoder)
        rows = order[picture.kind][picture.first_row : picture.first_row + picture.rows]
        if picture.plane == 0:
            samples[picture.kind][rows] = content
        else:
            low[picture.kind][rows] = unpack_low_bits(content, h, picture.kind, picture.rows)
    result = []
    for kind in (K, V):
        if h.channels(kind) == 0:
            result.append(np.zeros((h.layers, h.tokens, h.kv_heads, 0), DTYPES[h.dtype][1]))
            continue
        if h.has_basis():
            x = restore_calibrated(h, kind, codes_of(h, kind, samples[kind]), profile)
            rows = turn_and_convert(h, kind, x)
        elif h.tier == EXACT:
            rows = restore_exact(h, kind, samples[kind], low[kind])
        else:
            rows = restore_int8(h, kind, samples[kind])
        shape = h.layers, h.kv_heads, h.head_dim(kind), h.tokens
        elements = np.ascontiguousarray(rows.reshape(shape).transpose(0, 3, 1, 2))
        if h.sink_tokens:
            elements[:, : h.sink_tokens] = sinks_of(h, kind)
        result.append(elements)
    return h, result


def canonical_bytes(elements):
    keys, values = elements
    return b"".join(k.tobytes() + v.tobytes() for k, v in zip(keys, values))


def save(path, header, elements):
    if not path.endswith(".npy"):
        with open(path, "wb") as out:
            out.write(canonical_bytes(elements))
        return
    if header.dtype != 2:
        elements = [e.view(np.float16 if header.dtype == 1 else np.float32) for e in elements]
    if header.key_dim == header.value_dim:
        np.save(path, np.stack(elements, axis=1))
    else:
        np.save(path[:-4] + ".k.npy", elements[K])
        np.save(path[:-4] + ".v.npy", elements[V])


def save_planes(folder, data):
    """The samples of every symbols picture, for benchmarks: INDEX_K_TOKENSxROWS.raw."""
    header, decoder = read_header(data), hevc_stream.find_decoder()
    for index, picture in enumerate(header.pictures):
        if picture.plane == 0:
            samples = read_content(data, picture, index, header, decoder)
            name = f"{index}_{'KV'[picture.kind]}_{header.tokens}x{picture.rows}.raw"
            (pathlib.Path(folder) / name).write_bytes(samples.tobytes())


def print_info(header):
    for name, value in header.values.items():
        print(f"{name}: {value.hex() if isinstance(value, bytes) else value}")
    names = ("raw", "hevc", "hevc-rice")
    for i, p in enumerate(header.pictures):
        print(f"picture {i}: {'KV'[p.kind]} {('symbols', 'low bits')[p.plane]} rows {p.first_row} + "
              f"{p.rows}, {p.width}x{p.height} {names[p.coding]}, {p.bytes} bytes at {p.offset}")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description="Slow, independent decoder of KVCodec chunks.")
    parser.add_argument("file")
    parser.add_argument("-o", "--output", help="FILE.npy, or any other name for raw bytes")
    parser.add_argument("--planes", metavar="FOLDER", help="write the samples of the pictures there")
    parser.add_argument("--profile", help="of the calibrated tiers")
    parser.add_argument("--info", action="store_true", help="print the header")
    arguments = parser.parse_args()
    with open(arguments.file, "rb") as file:
        data = file.read()
    try:
        if arguments.info:
            print_info(read_header(data))
        if arguments.planes:
            save_planes(arguments.planes, data)
        if arguments.output:
            profile = profile_ref.load(arguments.profile) if arguments.profile else None
            save(arguments.output, *decode(data, profile=profile))
    except (Corrupt, Unsupported) as error:
        print(f"{arguments.file}: {type(error).__name__.lower()}: {error}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
