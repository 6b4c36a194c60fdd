#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails on blanks at line ends, tabs, carriage returns, invisible characters, a missing newline or
a blank line at the end of a file, and a source without its SPDX line.

Usage: check_text.py [ROOT]    checks the files that git tracks or would add
"""
import pathlib
import re
import subprocess
import sys

SPDX = "SPDX-License-Identifier: Apache-2.0"
SOURCES = {".h", ".cpp", ".cu", ".cuh", ".py", ".sh"}
LINE_RULES = (
    (re.compile(r"\r"), "carriage return"),
    (re.compile(r"[ \t]+\r?$"), "blank at the end"),
    (re.compile(r"\t"), "tab"),
    (re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u00a0\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff]"),
     "invisible character"),
)
# Somebody else's words, and data.
EXEMPT = re.compile(r"^LICENSE$|^tests/golden/|^tests/fuzz/(corpus|crashes)/|^tests/.*/data/")


def needs_spdx(path, text):
    return pathlib.Path(path).suffix in SOURCES or text.startswith("#!")


def check(root, paths):
    complaints = []
    for path in paths:
        if EXEMPT.search(path):
            continue
        try:
            text = (root / path).read_bytes().decode()
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue
        lines = text.split("\n")
        for number, line in enumerate(lines, 1):
            # One complaint a line: the first rule that it breaks.
            for pattern, what in LINE_RULES:
                if pattern.search(line):
                    complaints.append(f"{path}:{number}: {what}")
                    break
        if text and not text.endswith("\n"):
            complaints.append(f"{path}: no newline at the end")
        elif text.endswith("\n\n"):
            complaints.append(f"{path}: blank line at the end")
        if needs_spdx(path, text) and not any(SPDX in line for line in lines[:2]):
            complaints.append(f"{path}: no line '{SPDX}' at the top")
    return complaints


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    listing = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=root,
                             check=True, stdout=subprocess.PIPE).stdout
    complaints = check(root, sorted(filter(None, listing.decode().split("\0"))))
    print("\n".join(complaints) if complaints else "text: clean")
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main())
