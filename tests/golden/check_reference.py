#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks tools/reference against the golden files: check_reference.py FOLDER.

Good objects must give the pinned bytes, bad ones the manifest's kind of error. Exit status 77,
with the reason, where a package that the decoder needs is missing.
"""

import json
import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools" / "reference"))

try:
    import hevc_stream
    import kvcodec_ref
    import profile_ref
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)


def load_profiles(folder):
    """By digest and by name."""
    profiles = {}
    for path in sorted(folder.glob("profiles/*.safetensors")):
        profile = profile_ref.load(path)
        profiles[profile.digest] = profiles[path.stem] = profile
    return profiles


def check_good(path, profiles):
    data = path.read_bytes()
    digest = kvcodec_ref.read_header(data).profile
    _, elements = kvcodec_ref.decode(data, profile=profiles.get(digest))
    if kvcodec_ref.canonical_bytes(elements) != path.with_suffix(".raw").read_bytes():
        return "restores other elements"
    return None


def check_bad(path, entry, profiles):
    expected = None
    if "expected" in entry:
        e = entry["expected"]
        expected = bytes.fromhex(e["namespace"]), bytes.fromhex(e["key"]), e["first_token"]
    try:
        kvcodec_ref.decode(path.read_bytes(), expected, profiles.get(entry.get("profile")))
    except (kvcodec_ref.Corrupt, kvcodec_ref.Unsupported) as error:
        code = type(error).__name__.lower()
        return None if code == entry["code"] else f"expected {entry['code']}, found {code}: {error}"
    return "accepted"


def main():
    if hevc_stream.find_decoder() is None:
        print("skipped: neither the ffmpeg program nor the PyAV package is here")
        return 77
    folder = pathlib.Path(sys.argv[1])
    profiles = load_profiles(folder)
    results = {path.name: check_good(path, profiles) for path in sorted(folder.glob("good/*.kvc"))}
    if not results:
        results["good"] = "has no files"
    for entry in json.loads((folder / "bad/manifest.json").read_text()):
        results[entry["file"]] = check_bad(folder / "bad" / entry["file"], entry, profiles)
    failures = {name: fault for name, fault in results.items() if fault}
    for name, fault in failures.items():
        print(f"{name}: {fault}")
    print(f"{len(results)} files, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
