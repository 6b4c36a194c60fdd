#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes PyPI's CUDA build of torch importable where no CUDA library is installed, for work on CPUs.

PyPI has no CPU build of torch for Linux, and the libraries that its CUDA build names take 4 GB that
a machine without GPU never calls. One small library stands in for all of them: every function of
theirs that torch refers to fails with "insufficient driver", so that torch finds no device.

Usage: torch_stubs.py SITE_PACKAGES      needs gcc, readelf and nm
"""

import pathlib
import re
import subprocess
import sys
import tempfile

LIBRARY = "libkvcodec_cudastub.so"
SONAME = re.compile(r"lib(cu|nv|nccl)")
SYMBOL = re.compile(r"_*(cu|nv|nccl|Nv)")
RETURNS_TEXT = re.compile(r"(String|Name|_string|LastError)$")
INSUFFICIENT_DRIVER = 35  # cudaErrorInsufficientDriver


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1]) / "torch" / "lib"
    names, symbols = set(), set()
    for library in sorted(folder.glob("lib*.so*")):
        if library.name == LIBRARY or library.is_symlink():
            continue
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-dW", library))
        names.update(name for name in needed if SONAME.match(name))
        undefined = output("nm", "-D", "--undefined-only", library).split("\n")
        symbols.update(line.split()[-1].split("@")[0] for line in undefined if line)
    symbols = sorted(name for name in symbols if SYMBOL.match(name))
    missing = sorted(name for name in names if not (folder / name).exists())
    # A data symbol would need its size; there is none as of torch 2.13.
    source = "".join(
        f'const char *{name}(void) {{ return "no CUDA here"; }}\n' if RETURNS_TEXT.search(name)
        else f"long {name}(void) {{ return {INSUFFICIENT_DRIVER}; }}\n" for name in symbols
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as work:
        file = pathlib.Path(work) / "stub.c"
        file.write_text(source)
        subprocess.run(["gcc", "-w", "-O1", "-fno-builtin", "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}",
                        "-o", folder / LIBRARY, file], check=True)  # fmt: skip
        # Not links: torch asks some names for versioned symbols, which ld.so would then look for in
        # the library of that name. It takes any symbol from a library of another name.
        file.write_text("")
        for name in missing:
            subprocess.run(["gcc", "-shared", f"-Wl,-soname,{name}", "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN",
                            "-o", folder / name, file, folder / LIBRARY], check=True)  # fmt: skip
    print(f"torch: {len(symbols)} functions of {len(names)} CUDA libraries stubbed, {len(missing)} made")


if __name__ == "__main__":
    main()
