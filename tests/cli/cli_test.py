# SPDX-License-Identifier: Apache-2.0
"""The command line as people use it: real files, exit codes, messages, JSON. Standard library only."""

import array
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

KVCODEC = sys.argv.pop(1)

LAYERS, TOKENS, HEADS, DIM = 2, 64, 3, 16


def kv_values(layers=LAYERS, tokens=TOKENS, heads=HEADS, dim=DIM):
    """Deterministic floats that look a little like a cache: channels differ in mean and scale."""
    state = 12345
    values = []
    for layer in range(layers):
        for kind in range(2):
            for token in range(tokens):
                for channel in range(heads * dim):
                    state = (state * 1103515245 + 12345) % 2**31
                    noise = state / 2**30 - 1
                    values.append((channel % 7 - 3) * 0.5 + noise * (1 + channel % 5) * (1 + layer))
    return values


def half(values):
    return struct.pack(f"<{len(values)}e", *values)


def npy_bytes(descr, shape, data):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


def safetensors_bytes(tensors, metadata=None):
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def split_kv(values):
    """[layer][K|V][token][head][dim] into key and value tensors."""
    row = TOKENS * HEADS * DIM
    key = [v for layer in range(LAYERS) for v in values[2 * layer * row : (2 * layer + 1) * row]]
    value = [v for layer in range(LAYERS) for v in values[(2 * layer + 1) * row : (2 * layer + 2) * row]]
    return key, value


class Cli(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        self.values = kv_values()
        self.npy = self.write("kv.npy", npy_bytes("<f2", (LAYERS, 2, TOKENS, HEADS, DIM), half(self.values)))
        key, value = split_kv(self.values)
        shape = [LAYERS, TOKENS, HEADS, DIM]
        self.tokens = list(range(1000, 1000 + TOKENS))
        self.tensors = {
            "key": ("F16", shape, half(key)),
            "value": ("F16", shape, half(value)),
            "tokens": ("I32", [TOKENS], array.array("i", self.tokens).tobytes()),
        }
        self.safetensors = self.write("kv.safetensors", safetensors_bytes(self.tensors, {"model": "test"}))

    def write(self, name, data):
        path = self.root / name
        path.write_bytes(data)
        return str(path)

    def run_cli(self, *words, code=0):
        done = subprocess.run([KVCODEC, *map(str, words)], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, code, f"{words}\nstdout: {done.stdout}\nstderr: {done.stderr}")
        return done

    def run_json(self, *words, code=0):
        return json.loads(self.run_cli(*words, "--json", code=code).stdout)

    def test_exact_round_trip_npy(self):
        chunk, out = self.root / "kv.kvc", self.root / "out.npy"
        figures = self.run_json("encode", self.npy, "-o", chunk)
        self.assertEqual(figures["raw_bytes"], 2 * len(self.values))
        self.assertEqual(figures["object_bytes"], os.path.getsize(chunk))
        self.run_cli("decode", chunk, "-o", out)
        self.assertEqual(out.read_bytes()[-2 * len(self.values) :], half(self.values))
        self.run_cli("verify", chunk)

    def test_exact_round_trip_safetensors(self):
        chunk, out = self.root / "kv.kvc", self.root / "out.safetensors"
        self.run_cli("encode", self.safetensors, "-o", chunk)
        self.run_cli("decode", chunk, "-o", out)
        data = out.read_bytes()
        self.assertIn(self.tensors["key"][2] + self.tensors["value"][2], data)

    def test_int8_is_smaller_and_close(self):
        exact, coded, out = self.root / "e.kvc", self.root / "c.kvc", self.root / "out.npy"
        large = self.run_json("encode", self.npy, "-o", exact)
        small = self.run_json("encode", self.npy, "-o", coded, "--tier", "int8", "--rope", "interleaved:10000")
        self.assertLess(small["object_bytes"], large["object_bytes"])
        self.run_cli("decode", coded, "-o", out)
        back = struct.unpack(f"<{len(self.values)}e", out.read_bytes()[-2 * len(self.values) :])
        worst = max(abs(a - b) for a, b in zip(back, self.values))
        self.assertLess(worst, 0.12)
        self.assertGreater(worst, 0)

    def test_info(self):
        chunk = self.root / "kv.kvc"
        self.run_cli("encode", self.npy, "-o", chunk, "--tier", "int8", "--first-token", 256)
        info = self.run_json("info", chunk)
        self.assertEqual((info["tier"], info["tokens"], info["first_token"]), ("int8", TOKENS, 256))
        self.assertEqual((info["layers"], info["kv_heads"], info["key_dim"]), (LAYERS, HEADS, DIM))
        self.assertEqual(info["object_bytes"], os.path.getsize(chunk))
        text = self.run_cli("info", chunk).stdout
        self.assertIn("tier int8", text)
        self.assertIn("hevc", text)

    def test_verify_names_the_bad_file(self):
        chunk = self.root / "kv.kvc"
        self.run_cli("encode", self.npy, "-o", chunk)
        data = bytearray(chunk.read_bytes())
        data[-5] ^= 4
        bad = self.write("bad.kvc", data)
        done = self.run_cli("verify", chunk, bad, code=1)
        self.assertIn("kv.kvc: ok", done.stdout)
        self.assertIn("bad.kvc: corrupt", done.stdout)
        report = self.run_json("verify", chunk, bad, code=1)
        self.assertEqual((report["checked"], report["bad"]), (2, 1))

    def test_decode_of_damage_writes_nothing(self):
        chunk, out = self.root / "kv.kvc", self.root / "out.npy"
        self.run_cli("encode", self.npy, "-o", chunk)
        for cut in (0, 10, 100, os.path.getsize(chunk) - 1):
            bad = self.write("cut.kvc", chunk.read_bytes()[:cut])
            error = self.run_json("decode", bad, "-o", out, code=13)
            self.assertEqual(error["error"], "corrupt")
            self.assertFalse(out.exists())

    def test_non_finite(self):
        values = list(self.values)
        values[1234] = float("nan")
        values[77] = float("-inf")
        path = self.write("nan.npy", npy_bytes("<f2", (LAYERS, 2, TOKENS, HEADS, DIM), half(values)))
        chunk, out = self.root / "nan.kvc", self.root / "nan_out.npy"
        self.run_cli("encode", path, "-o", chunk)
        self.run_cli("decode", chunk, "-o", out)
        self.assertEqual(out.read_bytes()[-2 * len(values) :], half(values))
        done = self.run_cli("encode", path, "-o", chunk, "--tier", "int8", code=11)
        self.assertIn("layer", done.stderr)

    def test_bad_input_files(self):
        good = pathlib.Path(self.safetensors).read_bytes()
        cases = {
            "empty.npy": (b"", 13),
            "magic.npy": (b"\x93NUMPX" + b"\0" * 100, 13),
            "cut.npy": (pathlib.Path(self.npy).read_bytes()[:-7], 13),
            "object.npy": (npy_bytes("|O", (1, 2, 3, 4, 5), b""), 14),
            "rank.npy": (npy_bytes("<f2", (4, 4), half([0.0] * 16)), 14),
            "huge.npy": (npy_bytes("<f2", (4000000000, 2, 4000000000, 4000000000, 9), b""), 13),
            "empty.safetensors": (b"", 13),
            "length.safetensors": (struct.pack("<Q", 2**60) + b"{}", 13),
            "json.safetensors": (struct.pack("<Q", 4) + b"{{{{", 13),
            "cut.safetensors": (good[:-1000], 13),
            "names.safetensors": (safetensors_bytes({"x": ("F16", [1], half([0.0]))}), 14),
            "kv.txt": (b"hello", 14),
        }
        for name, (data, code) in cases.items():
            with self.subTest(name):
                path = self.write(name, data)
                done = self.run_cli("encode", path, "-o", self.root / "x.kvc", code=code)
                self.assertIn(name, done.stderr)
        self.run_cli("encode", self.root / "missing.npy", "-o", self.root / "x.kvc", code=12)
        self.assertFalse((self.root / "x.kvc").exists())

    def test_usage_errors(self):
        self.run_cli(code=2)
        self.run_cli("encode", code=2)
        self.run_cli("frobnicate", code=2)
        self.run_cli("encode", self.npy, "-o", self.root / "x", "--tier", "best", code=11)
        self.run_cli("encode", self.npy, "-o", self.root / "x", "--rope", "neox:abc", code=11)
        self.run_cli("encode", self.npy, "-o", self.root / "x", "--picture-height", 100, code=11)
        self.run_cli("ls", "--store", "ftp://x", code=14)
        self.assertIn("publish", self.run_cli("--help").stdout)
        self.assertIn("Example", self.run_cli("encode", "--help").stdout)

    def publish(self, store, *words, code=0):
        return self.run_json("publish", "--store", store, "--kv", self.safetensors, "--model-name", "m",
                             "--chunk-tokens", 16, *words, code=code)

    def test_store_life(self):
        store = f"file://{self.root}/store"
        first = self.publish(store)
        self.assertEqual((first["chunks"], first["written"], first["tokens"]), (4, 4, 64))
        again = self.publish(store)
        self.assertEqual((again["chunks"], again["written"]), (4, 0))
        self.assertEqual(self.publish(store, "--replace")["written"], 4)
        coded = self.publish(store, "--tier", "int8")
        self.assertEqual(coded["namespace"], first["namespace"])

        listed = self.run_json("ls", "--store", store)
        self.assertEqual(len(listed["objects"]), 8)
        self.assertIn("8 objects", self.run_cli("ls", "--store", store).stdout)

        ids, out = self.write("ids.json", json.dumps(self.tokens + [5]).encode()), self.root / "out.npy"
        fetch = ["fetch", "--store", store, "--namespace", first["namespace"], "--tokens", ids,
                 "--chunk-tokens", 16, "-o", out]
        report = self.run_json(*fetch)
        self.assertEqual((report["tokens_restored"], report["chunks"]), (64, 4))
        self.assertEqual(out.read_bytes()[-2 * len(self.values) :], half(self.values))

        # A prefix with another tail restores what is shared.
        other = self.write("other.json", json.dumps(self.tokens[:40] + [7] * 24).encode())
        partial = self.run_json(*[other if word == ids else word for word in fetch])
        self.assertEqual(partial["tokens_restored"], 32)

        foreign = self.write("foreign.json", json.dumps([1] * 64).encode())
        out.unlink()
        self.run_cli(*[foreign if word == ids else word for word in fetch], code=12)
        self.assertFalse(out.exists())

        names = self.run_cli("ls", "--store", store, "--names").stdout.split()
        self.run_cli("rm", "--store", store, names[0])
        self.run_cli("rm", "--store", store, names[0], code=12)
        gone = self.run_json("gc", "--store", store, "--max-bytes", 0)
        self.assertEqual(gone["objects_removed"], 7)
        self.assertEqual(self.run_json("ls", "--store", store)["objects"], [])

    def test_damaged_object_is_refused_and_mended(self):
        store = f"file://{self.root}/store"
        ns = self.publish(store)["namespace"]
        objects = sorted(p for p in (self.root / "store").rglob("*exact") if p.is_file())
        self.assertEqual(len(objects), 4)
        for path in objects:
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        ids, out = self.write("ids.json", json.dumps(self.tokens).encode()), self.root / "out.npy"
        done = self.run_cli("fetch", "--store", store, "--namespace", ns, "--tokens", ids, "--chunk-tokens", 16,
                            "-o", out, code=13)
        self.assertIn("corrupt", done.stderr)
        self.assertFalse(out.exists())
        self.publish(store, "--replace")
        self.run_cli("fetch", "--store", store, "--namespace", ns, "--tokens", ids, "--chunk-tokens", 16, "-o", out)
        self.assertEqual(out.read_bytes()[-2 * len(self.values) :], half(self.values))

    def test_bench(self):
        report = self.run_json("bench", self.safetensors, "--chunk-tokens", 32, "--repeat", 1)
        self.assertEqual([r["tier"] for r in report["results"]], ["exact", "int8"])
        for result in report["results"]:
            self.assertGreater(result["encode_mb_per_second"], 0)
            self.assertAlmostEqual(result["bits_per_value"], 16 * result["object_bytes"] / result["raw_bytes"])


if __name__ == "__main__":
    unittest.main()
