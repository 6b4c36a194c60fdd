#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a benchmark of build/release and keeps its figures as bench/results/NAME.json, with the
hardware, the date and the command; then run scripts/update_docs.py.

Usage: bench/run.py hevc|hevc_decode|codec|fetch|scheduler|store... [-- ARGUMENTS]

ARGUMENTS go to fetch_bench: --kv FILE... of a model's own caches (.safetensors, by kvcodec fetch
--out), --profile FILE. Without --kv the KV of this project's documents is made first, by the model
that KVCODEC_TEST_MODEL names.

The demo and bench/fidelity write their own: scripts/demo --json FILE, bench/fidelity/run.py --help.
"""

import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(": ", 1)[1]
    return "unknown"


def run_hevc():
    with tempfile.NamedTemporaryFile() as out:
        words = ["build/release/bench/hevc_bench", "--repeat", "5"]
        subprocess.run([*words, "--json", out.name], cwd=ROOT, check=True)
        return " ".join(words), json.load(out)


def run_hevc_decode():
    with tempfile.NamedTemporaryFile() as out:
        words = ["build/release/bench/hevc_decode_bench", "--repeat", "5"]
        subprocess.run([*words, "--json", out.name], cwd=ROOT, check=True)
        return " ".join(words), json.load(out)


def run_codec():
    words = ["build/release/bench/codec_bench", "--repeat", "5"]
    done = subprocess.run([*words, "--json"], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return " ".join(words), {"rows": json.loads(done.stdout)}


def run_store():
    words = ["build/release/bench/store_bench", "--repeat", "15"]
    done = subprocess.run([*words, "--json"], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return " ".join(words), {"rows": json.loads(done.stdout)}


def make_kv(folder):
    """KV of the project's own documents through the test model, as a file."""
    text, tokens, out = (pathlib.Path(folder) / name for name in ("text.md", "tokens.json", "kv.safetensors"))
    text.write_text("".join(p.read_text() for p in sorted((ROOT / "docs").glob("*.md")))[:14000])
    kvcodec, store = ROOT / "build/release/tools/kvcodec", ["--store", f"file://{folder}/store"]
    published = subprocess.run(
        [kvcodec, "publish", *store, "--model", os.environ["KVCODEC_TEST_MODEL"], "--text", text,
         "--tokens-out", tokens, "--json"],
        check=True, stdout=subprocess.PIPE,
    )
    namespace = json.loads(published.stdout)["namespace"]
    subprocess.run([kvcodec, "fetch", *store, "--namespace", namespace, "--tokens", tokens, "-o", out], check=True)
    return ["--kv", str(out)]


def run_fetch():
    given = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []
    words = ["build/release/bench/fetch_bench", "overlap", "adaptive", "faults", *given]
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out.json"
        made = [] if "--kv" in given else make_kv(folder)
        subprocess.run([*words, *made, "--json", out], cwd=ROOT, check=True)
        shown = [word.rsplit("/", 1)[-1] if word.startswith("/") else word for word in words]
        return " ".join(shown), json.loads(out.read_text())


def run_scheduler():
    words = ["build/release/bench/scheduler_bench", "200000"]
    done = subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return " ".join(words), json.loads(done.stdout)


def main():
    known = {
        "hevc": run_hevc,
        "hevc_decode": run_hevc_decode,
        "codec": run_codec,
        "fetch": run_fetch,
        "scheduler": run_scheduler,
        "store": run_store,
    }
    names = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    if not names or not set(names) <= set(known):
        print(__doc__)
        return 2
    for name in names:
        command, figures = known[name]()
        result = {
            "name": name,
            "date": datetime.date.today().isoformat(),
            "command": command,
            "hardware": {"processor": processor(), "cores": os.cpu_count()},
            **figures,
        }
        path = ROOT / "bench" / "results" / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(result, indent=2) + "\n")
        print(f"{path.relative_to(ROOT)} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
