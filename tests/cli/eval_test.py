# SPDX-License-Identifier: Apache-2.0
"""`kvcodec eval` with a real model, named by KVCODEC_TEST_MODEL. Standard library only."""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

KVCODEC = sys.argv.pop(1)
MODEL = os.environ.get("KVCODEC_TEST_MODEL")
TEXT = " ".join(
    f"On day {day} the keeper of the lighthouse wrote down {what}, trimmed the lamp and counted {day + 3} ships."
    for day, what in enumerate(["the wind", "the tide", "a letter", "the price of oil", "nothing", "a dream"] * 6))


def change(path, out, metadata=None, edit=None):
    """Copies a safetensors file with other metadata, its data edited in place."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header, body = json.loads(data[8 : 8 + length]), bytearray(data[8 + length :])
    header["__metadata__"].update(metadata or {})
    header["__metadata__"] = {k: v for k, v in header["__metadata__"].items() if v is not None}
    if edit:
        edit(header, body)
    text = json.dumps(header).encode()
    out.parent.mkdir(exist_ok=True)
    out.write_bytes(struct.pack("<Q", len(text)) + text + body)


@unittest.skipUnless(MODEL, "KVCODEC_TEST_MODEL is not set: give it the path of a small GGUF model")
class Eval(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.root = pathlib.Path(cls.folder.name)
        cls.text = cls.root / "keeper.txt"
        cls.text.write_text(TEXT)
        # One run that the others take their prefixes from.
        cls.first = cls.run_json("--methods", "raw,exact,int8", "--needles", "0.5", "--dump", cls.root / "dump")
        cls.case = cls.root / "dump" / "keeper-64.safetensors"

    @classmethod
    def run_cli(cls, *words, code=0, text=None):
        command = [KVCODEC, "eval", "--model", MODEL, "--text", text or cls.text, "--lengths", "64", "--continuation",
                   "16", "--chunk-tokens", "48", "--threads", "1", "--cache", cls.root / "cache", *words]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
        assert done.returncode == code, f"{words}\nstdout: {done.stdout}\nstderr: {done.stderr}"
        return done

    @classmethod
    def run_json(cls, *words, code=0):
        return json.loads(cls.run_cli(*words, "--json", code=code).stdout)

    def plain(self, report, method):
        return next(r for r in report["rows"] if r["method"] == method and "depth" not in r)

    def test_exact_changes_nothing(self):
        for method in ("raw", "exact"):
            row = self.plain(self.first, method)
            self.assertEqual((row["kl"], row["top1"], row["identical"]), (0, 1, True), method)
            self.assertEqual(row["log_prob"], row["exact_log_prob"])
        raw = self.plain(self.first, "raw")
        self.assertEqual(raw["bits"], 16 * raw["values"])
        self.assertEqual((raw["tokens"], raw["scored"]), (64, 16))
        exact = self.plain(self.first, "exact")
        self.assertEqual(exact["objects"], 2)  # 48 and 16 tokens
        self.assertLess(exact["bits"], raw["bits"])

    def test_int8_is_close_and_not_the_same(self):
        row = self.plain(self.first, "int8")
        self.assertFalse(row["identical"])
        self.assertGreater(row["kl"], 0)
        self.assertLess(row["kl"], 0.05)
        self.assertLess(row["bits"], 0.6 * 16 * row["values"])

    def test_needles_are_apart(self):
        planted = [r for r in self.first["rows"] if "depth" in r]
        self.assertEqual({r["case"] for r in planted}, {"keeper-64-needle50"})
        self.assertTrue(all(r["found"] == r["exact_found"] for r in planted if r["method"] == "exact"))
        summary = next(s for s in self.first["summary"] if s["method"] == "int8")
        self.assertEqual((summary["texts"], summary["needles"]), (1, 1))

    def test_what_is_known_is_not_computed_again(self):
        self.assertEqual(self.first["prefixes_computed"], 2)
        again = self.run_json("--methods", "raw,exact,int8", "--needles", "0.5")
        self.assertEqual((again["prefixes_computed"], again["scores_computed"]), (0, 0))
        self.assertEqual(again["rows"], self.first["rows"])
        for kept in (self.root / "cache").iterdir():
            kept.write_bytes(kept.read_bytes()[:-9])  # a damaged cache is mended
        mended = self.run_json("--methods", "raw,exact,int8", "--needles", "0.5")
        self.assertEqual(mended["prefixes_computed"], 2)
        self.assertEqual(mended["rows"], self.first["rows"])

    def test_external_of_the_same_values_changes_nothing(self):
        change(self.case, self.root / "same" / self.case.name, {"bits": "12345"})
        row = self.plain(self.run_json("--methods", f"external:mine={self.root / 'same'}"), "mine")
        self.assertEqual((row["bits"], row["kl"], row["identical"]), (12345, 0, True))

    def test_external_damage_is_measured(self):
        def blank(_, body):
            body[: len(body) // 3] = bytes(len(body) // 3)

        change(self.case, self.root / "blank" / self.case.name, {"bits": "1"}, blank)
        row = self.plain(self.run_json("--methods", f"external:blank={self.root / 'blank'}"), "blank")
        self.assertGreater(row["kl"], 0.1)

    def test_bad_external_files(self):
        def nan(header, body):
            at = header["value"]["data_offsets"][0] + 2 * 5
            body[at : at + 2] = b"\x00\x7e"

        def other_shape(header, _):
            layers, tokens, heads, dim = header["key"]["shape"]
            for name in ("key", "value"):
                header[name]["shape"] = [layers, tokens, heads * 2, dim // 2]

        def other_tokens(header, body):
            at = header["tokens"]["data_offsets"][0]
            body[at : at + 4] = b"\x01\x00\x00\x00" if body[at : at + 4] != b"\x01\x00\x00\x00" else b"\x02\x00\x00\x00"

        cases = {
            "nan": ({"bits": "5"}, nan, 11, "V of layer 0, token 0, head 0, dim 5 is not finite"),
            "shape": ({"bits": "5"}, other_shape, 11, "expected"),
            "tokens": ({"bits": "5"}, other_tokens, 11, "token ids"),
            "model": ({"bits": "5", "weights": "00" * 32}, None, 11, "another model"),
            "weights": ({"bits": "5", "weights": None}, None, 11, "'weights'"),
            "none": ({}, None, 11, "'bits'"),
            "zero": ({"bits": "0"}, None, 11, "'bits'"),
            "words": ({"bits": "5 bits"}, None, 11, "'bits'"),
        }
        for name, (metadata, edit, code, message) in cases.items():
            with self.subTest(name):
                change(self.case, self.root / name / self.case.name, metadata, edit)
                done = self.run_cli("--methods", f"external:x={self.root / name}", code=code)
                self.assertIn(message, done.stderr)
                self.assertIn(name, done.stderr)
        cut = self.root / "cut" / self.case.name
        cut.parent.mkdir()
        cut.write_bytes(self.case.read_bytes()[:-100])
        self.run_cli("--methods", f"external:x={self.root / 'cut'}", code=13)
        self.run_cli("--methods", f"external:x={self.root / 'nowhere'}", code=12)

    def test_bad_input(self):
        short = self.root / "short.txt"
        short.write_text("Too short.")
        done = self.run_cli("--methods", "raw", text=short, code=11)
        self.assertIn("need 81", done.stderr)
        self.run_cli("--methods", "raw", text=self.root / "missing.txt", code=12)
        self.run_cli("--methods", "raw,raw", code=11)
        self.run_cli("--methods", "best", code=11)
        self.run_cli("--methods", "external:x", code=11)
        self.run_cli("--methods", "small", code=11)
        self.run_cli("--methods", f"int8={self.text}", code=11)
        self.run_cli("--methods", f"small={self.root / 'missing'}", code=12)
        self.run_cli("--methods", "raw", "--needles", "1.5", code=11)
        self.run_cli(code=11)

    def test_table(self):
        text = self.run_cli("--methods", "exact,int8").stdout
        self.assertIn("0 (same bits)", text)
        self.assertRegex(text, r"int8 +64 ")


if __name__ == "__main__":
    unittest.main()
