#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a benchmark of build/release and keeps its figures as bench/results/NAME.json, with the
hardware, the date and the command; then run scripts/update_docs.py.

Usage: bench/run.py hevc|hevc_decode|codec|store...

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


def main():
    known = {"hevc": run_hevc, "hevc_decode": run_hevc_decode, "codec": run_codec,
             "store": run_store}
    names = sys.argv[1:]
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
