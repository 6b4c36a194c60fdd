# SPDX-License-Identifier: Apache-2.0
"""The calibrated tiers on the command line, with the golden profile of a cut of SmolLM2."""

import array
import json
import pathlib
import unittest

import cli_test

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
LAYERS, TOKENS, DIM = 3, 48, 16


def cut_tensors():
    """Dims 0 to 15 of head 0 of the real cache in smollm2_exact.raw: 3 layers, 3 heads of 64."""
    raw, row = (GOLDEN / "good/smollm2_exact.raw").read_bytes(), 3 * 64 * 2
    parts = {"key": b"", "value": b""}
    for layer in range(LAYERS):
        for kind, name in enumerate(parts):
            start = (2 * layer + kind) * TOKENS * row
            for token in range(TOKENS):
                parts[name] += raw[start + token * row : start + token * row + DIM * 2]
    tensors = {name: ("F16", [LAYERS, TOKENS, 1, DIM], data) for name, data in parts.items()}
    tensors["tokens"] = ("I32", [TOKENS], array.array("i", range(TOKENS)).tobytes())
    return tensors


class CalibratedCli(unittest.TestCase):
    write, run_cli, run_json = cli_test.Cli.write, cli_test.Cli.run_cli, cli_test.Cli.run_json

    def setUp(self):
        self.folder = cli_test.tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        self.tensors = cut_tensors()
        self.kv = self.write("kv.safetensors", cli_test.safetensors_bytes(self.tensors))
        self.profile = GOLDEN / "profiles/smollm2_cut.safetensors"
        self.other = GOLDEN / "profiles/neox_partial.safetensors"

    def encode(self, tier, *words):
        chunk = self.root / f"{tier}.kvc"
        figures = self.run_json("encode", self.kv, "-o", chunk, "--tier", tier, "--profile", self.profile,
                                "--first-token", 512, "--noise-factor", 0, *words)  # fmt: skip
        return chunk, figures

    def test_encode_info_decode_verify(self):
        sizes = []
        for tier in ("high", "balanced", "small"):
            chunk, figures = self.encode(tier)
            sizes.append(figures["object_bytes"])
            info = self.run_json("info", chunk)
            self.assertEqual((info["tier"], info["format_version"]), (tier, 2))
            self.assertEqual([g["layers"] for g in info["groups"]], [2, 1, 2, 1])
            self.assertTrue(all(0 < g["noise"] and 0 < g["relative_error"] < 1 for g in info["groups"]))
            text = self.run_cli("info", chunk).stdout
            self.assertIn(info["profile"], text)
            self.assertIn("relative error", text)
            self.run_cli("decode", chunk, "-o", self.root / "out.npy", "--profile", self.profile)
            self.run_cli("verify", chunk, "--profile", self.profile)
            self.run_cli("verify", chunk)
        self.assertEqual(sizes, sorted(sizes, reverse=True))

    def test_profiles_that_are_missing_or_others(self):
        chunk, _ = self.encode("balanced")
        out = self.root / "out.npy"
        done = self.run_cli("decode", chunk, "-o", out, code=11)
        self.assertIn(self.run_json("info", chunk)["profile"], done.stderr)
        done = self.run_cli("decode", chunk, "-o", out, "--profile", self.other, code=11)
        self.assertIn("another profile", done.stderr)
        done = self.run_cli("verify", chunk, "--profile", self.other, code=1)
        self.assertIn("another profile", done.stdout)
        done = self.run_cli("encode", self.kv, "-o", out, "--tier", "small", code=11)
        self.assertIn("--profile", done.stderr)
        done = self.run_cli("encode", self.kv, "-o", out, "--tier", "small", "--profile", self.other, code=11)
        self.assertIn("profile is of another model", done.stderr)
        self.run_cli("decode", chunk, "-o", out, "--profile", self.root / "none", code=12)
        broken = self.write("broken.safetensors", self.profile.read_bytes()[:-1])
        done = self.run_cli("decode", chunk, "-o", out, "--profile", broken, code=13)
        self.assertIn("broken.safetensors", done.stderr)
        self.assertFalse(out.exists())

    def test_another_position(self):
        chunk, _ = self.encode("balanced")
        here, there = self.root / "here.safetensors", self.root / "there.safetensors"
        self.run_cli("decode", chunk, "-o", here, "--profile", self.profile)
        self.run_cli("decode", chunk, "-o", there, "--profile", self.profile, "--position", 9000)
        half = LAYERS * TOKENS * DIM * 2  # keys first, then values
        first, second = here.read_bytes(), there.read_bytes()
        self.assertEqual(first[-half:], second[-half:])
        self.assertNotEqual(first[-2 * half : -half], second[-2 * half : -half])

    def test_identity(self):
        chunk, out = self.root / "i.kvc", self.root / "out.npy"
        self.run_cli("encode", self.kv, "-o", chunk, "--tier", "balanced", "--profile", "identity", "--rope",
                     "interleaved:100000")  # fmt: skip
        self.run_cli("decode", chunk, "-o", out)
        self.run_cli("decode", chunk, "-o", out, "--profile", "identity")

    def test_store_and_floor(self):
        store = f"file://{self.root}/store"
        publish = ["publish", "--store", store, "--kv", self.kv, "--model-name", "m", "--chunk-tokens", 16,
                   "--profile", self.profile, "--noise-factor", 0]  # fmt: skip
        first = self.run_json(*publish, "--tier", "balanced")
        self.assertEqual((first["written"], first["finer"]), (3, 0))
        self.assertEqual(self.run_json(*publish, "--tier", "small")["namespace"], first["namespace"])
        names = self.run_cli("ls", "--store", store, "--names").stdout.split()
        self.assertEqual(len([n for n in names if "/balanced-" in n]), 3)
        ids, out = self.write("ids.json", json.dumps(list(range(TOKENS))).encode()), self.root / "out.npy"
        fetch = ["fetch", "--store", store, "--namespace", first["namespace"], "--tokens", ids, "--chunk-tokens",
                 16, "-o", out]  # fmt: skip
        report = self.run_json(*fetch, "--rendition", "balanced", "--profile", self.profile)
        self.assertEqual(report["tokens_restored"], TOKENS)
        out.unlink()
        self.run_cli(*fetch, "--rendition", "balanced", code=11)
        done = self.run_cli(*fetch, "--rendition", "small", "--profile", self.profile, "--floor", "balanced", code=11)
        self.assertIn("floor", done.stderr)
        self.run_cli(*fetch, "--rendition", "high", "--profile", self.profile, code=12)
        self.assertFalse(out.exists())

    def test_bench_has_the_tiers(self):
        report = self.run_json("bench", self.kv, "--chunk-tokens", 16, "--repeat", 1, "--profile", self.profile)
        self.assertEqual([r["tier"] for r in report["results"]], ["exact", "int8", "high", "balanced", "small"])


if __name__ == "__main__":
    unittest.main()
