#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if a file has grown beyond LIMIT lines; lists those beyond AIM.

Usage: check_sizes.py [ROOT]
"""
import pathlib
import sys

AIM, LIMIT = 300, 600
FOLDERS = ("include", "src", "tools", "bench", "tests", "python", "scripts", "cmake")
SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".py", ".sh", ".cmake", ".txt", ".in", ""}
# Files that are one table, by path; nothing else may be longer than LIMIT.
TABLES = set()


def check(root):
    """(files beyond LIMIT, files beyond AIM), each a list of (lines, path)."""
    over, long = [], []
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            path = file.relative_to(root).as_posix()
            if not file.is_file() or file.suffix not in SUFFIXES or "__pycache__" in path:
                continue
            try:
                lines = len(file.read_text().splitlines())
            except UnicodeDecodeError:  # a golden file
                continue
            if lines > LIMIT and path not in TABLES:
                over.append((lines, path))
            elif lines > AIM:
                long.append((lines, path))
    return over, long


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    over, long = check(root)
    for lines, path in long:
        print(f"{path}: {lines} lines; aim at {AIM}")
    for lines, path in over:
        print(f"{path}: {lines} lines; the limit is {LIMIT}")
    print(f"sizes: {len(over)} over {LIMIT}, {len(long)} over {AIM}")
    return bool(over)


if __name__ == "__main__":
    sys.exit(main())
