#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the golden streams against H.265, and that the checker sees faults: check_streams.py FOLDER."""

import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools" / "reference"))

import hevc_check  # noqa: E402
import hevc_stream  # noqa: E402


def fault_of(stream):
    try:
        hevc_check.check_stream(stream)
    except hevc_check.Broken as error:
        return str(error)
    return None


def header_bits(stream):
    """Positions of the bits of the parameter sets and the P picture's header that matter."""
    end = stream.index(b"\0\0\0\1\x28")
    return range(32, 8 * end)


def unseen_faults(stream):
    """Of single wrong bits in the parameter sets, how many the checker accepts."""
    unseen = 0
    for bit in header_bits(stream):
        changed = bytearray(stream)
        changed[bit // 8] ^= 0x80 >> bit % 8
        unseen += fault_of(bytes(changed)) is None
    return unseen


def main():
    paths = sorted(pathlib.Path(sys.argv[1]).glob("streams/*.hevc"))
    failures = {path.name: fault for path in paths if (fault := fault_of(path.read_bytes()))}
    if not paths:
        failures["streams"] = "has no files"
    for width, height in ((144, 144), (8192, 4352), (8192, 4360), (8192, 8192), (152, 8184)):
        for rice in (False, True):
            stream = hevc_stream.stream_of(b"\x80", width, height, rice)
            if fault := fault_of(stream):
                failures[f"reference headers of {width}x{height}"] = fault
    # A level that does not allow the size, and bits at random: most must be seen.
    tall = (pathlib.Path(sys.argv[1]) / "streams/smallest_of_level_6_3.hevc").read_bytes()
    low = tall.replace(bytes([189]), bytes([186]), 2)
    if "A.4.1" not in (fault_of(low) or ""):
        failures["a level too low"] = f"found {fault_of(low)}"
    small = (pathlib.Path(sys.argv[1]) / "streams/flat_144x144.hevc").read_bytes()
    bits, unseen = len(header_bits(small)), unseen_faults(small)
    if unseen > bits // 6:
        failures["wrong bits"] = f"{unseen} of {bits} not seen"
    for name, fault in failures.items():
        print(f"{name}: {fault}")
    print(f"{len(paths)} streams, {bits - unseen} of {bits} wrong bits seen, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
