#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy on the sources of a build folder, several at once.

A source that was clean is not run again until it, a header of this project that it includes, its
compile command, .clang-tidy or clang-tidy itself changes: stamps of clean runs are kept in the
cache folder.

Usage: run_tidy.py BUILD CACHE FOLDER...     for example: build/release ~/.cache/x src tools
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOOL = "clang-tidy-14"


def compile_command(entry):
    """The compiler's arguments without its launcher and output."""
    words = shlex.split(entry["command"])
    while words and pathlib.Path(words[0]).name == "ccache":
        words = words[1:]
    if "-o" in words:
        at = words.index("-o")
        del words[at:at + 2]
    return [word for word in words if word != "-c"]


def project_headers(entry):
    """The files of this tree that a source consists of, itself among them."""
    rule = subprocess.run(compile_command(entry) + ["-MM", "-MT", "x"], cwd=entry["directory"],
                          check=True, stdout=subprocess.PIPE, text=True).stdout
    names = shlex.split(rule.replace("\\\n", " "))[1:]
    paths = {(pathlib.Path(entry["directory"]) / name).resolve() for name in names}
    return sorted(path for path in paths if path.is_relative_to(ROOT))


def stamp_name(entry, version):
    digest = hashlib.sha256(version)
    # Clones in other folders share stamps.
    digest.update(" ".join(compile_command(entry)).replace(str(ROOT), ".").encode())
    for path in [ROOT / ".clang-tidy", *project_headers(entry)]:
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def run(entry, build, stamps, version):
    """(source, complaints): no complaints where it is clean; None where it was known to be."""
    source = str(pathlib.Path(entry["file"]).relative_to(ROOT))
    stamp = stamps / stamp_name(entry, version)
    if stamp.exists():
        return source, None
    done = subprocess.run([TOOL, "-p", str(build), "--quiet", entry["file"]], cwd=ROOT,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        return source, done.stdout or done.stderr or f"{TOOL}: exit status {done.returncode}"
    stamp.touch()
    return source, ""


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    build, stamps = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    folders = [ROOT / folder for folder in sys.argv[3:]]
    stamps.mkdir(parents=True, exist_ok=True)
    version = subprocess.run([TOOL, "--version"], check=True, stdout=subprocess.PIPE).stdout
    # A file that is in several targets is checked once.
    entries = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        if any(path.is_relative_to(folder) for folder in folders):
            entries.setdefault(entry["file"], entry)
    if not entries:
        sys.exit(f"error: {build}/compile_commands.json names no source in {' '.join(sys.argv[3:])}")
    known = bad = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(run, entry, build, stamps, version) for entry in entries.values()]
        for job in concurrent.futures.as_completed(jobs):
            source, complaints = job.result()
            known += complaints is None
            if complaints:
                bad += 1
                print(f"{source}:\n{complaints.strip()}", flush=True)
    print(f"clang-tidy: {len(entries)} files, {known} unchanged, {bad} with complaints")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
