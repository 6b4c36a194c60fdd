# SPDX-License-Identifier: Apache-2.0
"""Prefixes in several renditions on the command line: publish --renditions, fetch --adaptive."""

import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unittest

KVCODEC = sys.argv.pop(1)
LAYERS, TOKENS, HEADS, DIM, CHUNK = 2, 80, 2, 16, 16


def safetensors(tensors):
    header, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


class FetchAdaptive(unittest.TestCase):
    def setUp(self):
        self.temp = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temp.name)
        self.addCleanup(self.temp.cleanup)
        source = random.Random(3)
        count = LAYERS * TOKENS * HEADS * DIM
        halves = [struct.pack(f"<{count}e", *(source.gauss(0, 1) for _ in range(count))) for _ in range(2)]
        shape = [LAYERS, TOKENS, HEADS, DIM]
        tokens = struct.pack(f"<{TOKENS}i", *range(TOKENS))
        self.kv = self.folder / "kv.safetensors"
        self.kv.write_bytes(
            safetensors({"key": ("F16", shape, halves[0]), "value": ("F16", shape, halves[1]),
                         "tokens": ("I32", [TOKENS], tokens)})
        )
        self.store = ["--store", f"file://{self.folder}/store"]

    def run_cli(self, *words, expect=0):
        done = subprocess.run([KVCODEC, *map(str, words)], capture_output=True, text=True)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def publish(self, renditions="exact,int8,int8-h144"):
        done = self.run_cli("publish", *self.store, "--kv", self.kv, "--chunk-tokens", CHUNK,
                            "--renditions", renditions, "--tokens-out", self.folder / "ids.json", "--json")
        return json.loads(done.stdout)

    def fetch(self, namespace, *words, expect=0):
        return self.run_cli("fetch", *self.store, "--namespace", namespace, "--tokens", self.folder / "ids.json",
                            "--chunk-tokens", CHUNK, "-o", self.folder / "out.safetensors", "--adaptive", "--json",
                            *words, expect=expect)

    def test_round_trip(self):
        published = self.publish()
        self.assertEqual(published["chunks"], 15)
        done = self.fetch(published["namespace"], "--floor", "exact")
        report = json.loads(done.stdout)
        self.assertEqual(report["tokens_restored"], TOKENS)
        self.assertEqual(report["renditions"], {"exact": 5})
        kept = self.kv.read_bytes()[-2 * LAYERS * TOKENS * HEADS * DIM * 2 - 4 * TOKENS :]
        self.assertIn(kept[: LAYERS * TOKENS * HEADS * DIM * 2], (self.folder / "out.safetensors").read_bytes())

    def test_observers(self):
        namespace = self.publish()["namespace"]
        trace, metrics = self.folder / "trace.json", self.folder / "metrics.txt"
        self.fetch(namespace, "--trace", trace, "--metrics", metrics, "--log")
        events = json.loads(trace.read_text())["traceEvents"]
        tracks = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
        self.assertEqual(tracks, {"decode and restore", "plan", "transfer"})
        for stage in tracks - {"plan"}:
            tid = next(e["tid"] for e in events if e["name"] == "thread_name" and e["args"]["name"] == stage)
            chunks = {e["name"] for e in events if e["ph"] == "X" and e["tid"] == tid}
            self.assertEqual(chunks, {f"chunk {i}" for i in range(5)})
        self.assertIn('kvcodec_fetches_total{end="complete"} 1\n', metrics.read_text())
        self.assertIn("kvcodec_fetch_tokens_restored_total 80\n", metrics.read_text())

    def test_a_damaged_rendition_is_replaced(self):
        namespace = self.publish("exact,int8")["namespace"]
        objects = [p for p in (self.folder / "store/objects").rglob("*int8") if p.is_file()]
        self.assertEqual(len(objects), 5)
        for path in objects:
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        done = self.fetch(namespace, "--log", "--mbps", 1)
        report = json.loads(done.stdout)
        self.assertEqual(report["renditions"], {"exact": 5})
        self.assertEqual(report["tokens_restored"], TOKENS)
        if report["retries"]:
            self.assertIn('"event":"fetch.retry"', done.stderr)
            self.assertNotIn(str(self.folder), done.stderr)

    def test_a_profile_completes_names(self):
        done = self.run_cli("publish", *self.store, "--kv", self.kv, "--chunk-tokens", CHUNK, "--profile",
                            "identity", "--renditions", "balanced-h512,exact", "--json")
        self.assertEqual(json.loads(done.stdout)["chunks"], 10)
        listed = self.run_cli("ls", *self.store, "--json").stdout
        self.assertRegex(listed, r"balanced-[0-9a-f]{16}-h512")

    def test_errors(self):
        namespace = self.publish("int8")["namespace"]
        self.fetch(namespace, "--floor", "exact", expect=12)
        self.fetch("0" * 64, expect=12)
        self.fetch(namespace, "--renditions", "nonsense", expect=11)
        self.fetch(namespace, "--machine", "abacus", expect=11)
        self.fetch(namespace, "--mbps", 0.02, "--deadline", 0.2, expect=15)
        base = ["publish", *self.store, "--kv", self.kv]
        self.run_cli(*base, "--renditions", "small", expect=11)
        self.run_cli(*base, "--renditions", "int8,int8", expect=11)
        self.run_cli(*base, "--renditions", "int8", "--tier", "exact", expect=2)
        self.run_cli("fetch", *self.store, "--trace", "x.json", expect=2)


if __name__ == "__main__":
    unittest.main()
