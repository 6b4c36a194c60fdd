# SPDX-License-Identifier: Apache-2.0
"""Judged texts are never those that anything was calibrated on: scripts/calibration-texts makes sets
that share nothing, and bench/fidelity/run.py refuses what does."""

import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

FIDELITY = pathlib.Path(sys.argv.pop(1))
SCRIPT = FIDELITY.parents[1] / "scripts/calibration-texts"
sys.path.insert(0, str(FIDELITY))

import run  # noqa: E402

SHARED = "This line of a licence is longer than sixty characters and stands in very many files."


def long_lines(path):
    return {line.strip() for line in path.read_text().splitlines() if len(line.strip()) >= 60}


class Sets(unittest.TestCase):
    """Of a tree with documents of every kind, some of which share a line."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name, "root")
        for n in range(40):
            self.document(f"usr/include/h{n}.h", f"int value{n}(int argument, double other); /* number {n}, and so on */\n")
            self.document(f"usr/share/common-licenses/L{n}", f"Clause {n} of this licence says what clause {n} has to say, at length.\n")
            self.document(f"usr/share/games/fortunes/es/f{n}.fortunes", f"La sentencia {n} no es como ninguna de las otras {n} sentencias, dicen.\n")
            self.document(f"usr/share/perl/5.1/pod/perlfaq{n % 9 + 1}.pod", "".join(
                f"=head2 Question {n}.{i}?\n\n" + f"The answer to question {n}.{i} is as long as this line and no other is.\n" * 8
                for i in range(20)))

    def tearDown(self):
        self.folder.cleanup()

    def document(self, name, line):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        n = int("".join(c for c in path.name if c.isdigit()) or 0)
        # Every third document shares a line with all others like it.
        own = "".join(f"{i} {line}" for i in range(60)) if not line.startswith("=") else line
        path.write_text(own + (SHARED + "\n" if n % 3 == 0 else "") + own)

    def collect(self):
        out = pathlib.Path(self.folder.name, "out")
        done = subprocess.run([sys.executable, SCRIPT, "--root", self.root, "--docs", "8", "--chars", "5000", out],
                              capture_output=True, text=True)
        self.assertIn("texts in", done.stdout, done.stderr)
        return out

    def test_share_no_document_and_no_long_line(self):
        out = self.collect()
        sources = [line.split("\t")[:2] for line in (out / "sources.tsv").read_text().splitlines()]
        documents = {}
        for target, source in sources:
            documents.setdefault(source.split("#")[0], set()).add(target.split("/")[0])
        for source, sets in documents.items():
            self.assertEqual(len(sets), 1, f"{source} is in {sets}")
        self.assertEqual({name for sets in documents.values() for name in sets}, {"calibrate", "judge", "validate"})
        judged = set().union(*(long_lines(p) for p in (out / "judge").glob("*.txt")))
        self.assertIn(SHARED, judged, "the test needs a judged text with the line")
        for name in ("calibrate", "validate"):
            for path in (out / name).glob("*.txt"):
                self.assertFalse(long_lines(path) & judged, path)

    def test_are_the_same_every_time(self):
        first = (self.collect() / "sources.tsv").read_text()
        self.assertEqual((self.collect() / "sources.tsv").read_text(), first)


class Refusals(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        for name, text in (("judge/000-code.txt", "a judged text\n"), ("judge/000-chat.txt", "another one\n"),
                           ("calibrate/000-code.txt", "what was calibrated on\n")):
            (self.path / name).parent.mkdir(exist_ok=True)
            (self.path / name).write_text(text)

    def tearDown(self):
        self.folder.cleanup()

    def check(self, calibrated_on):
        texts = [{"name": "x", "sha256": hashlib.sha256(t.encode()).hexdigest()} for t in calibrated_on]
        header = json.dumps({"__metadata__": {"calibration": json.dumps({"texts": texts[:1], "validation": texts[1:]})}})
        profile = self.path / "p.safetensors"
        profile.write_bytes(len(header).to_bytes(8, "little") + header.encode())
        return run.check_disjoint(argparse.Namespace(texts=self.path / "judge", texts_a_kind=2, profile=[profile, None],
                                                     calibration=self.path / "calibrate"))

    def test_disjoint_passes(self):
        found = self.check(["what was calibrated on\n", "what was validated on\n"])
        self.assertEqual(found, {"judged": 2, "of_profiles": 2, "of_calibration": 1, "shared_lines": 0})

    def test_text_of_the_profile(self):
        for texts in (["a judged text\n"], ["x", "another one\n"]):
            with self.assertRaisesRegex(SystemExit, "is judged, and .*p.safetensors was made with it"):
                self.check(texts)

    def test_profile_that_does_not_say(self):
        with self.assertRaisesRegex(SystemExit, "does not say"):
            self.check([])

    def test_shared_line(self):
        for name in ("judge/000-chat.txt", "calibrate/000-code.txt"):
            with open(self.path / name, "a") as file:
                file.write(SHARED + "\n")
        with self.assertRaisesRegex(SystemExit, "shares with .*000-code.txt: This line"):
            self.check(["x"])


if __name__ == "__main__":
    unittest.main()
