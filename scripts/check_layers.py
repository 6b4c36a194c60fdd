#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if a file includes what its layer may not know: docs/architecture.md, "Layers".

Usage: check_layers.py [ROOT]
"""
import pathlib
import re
import sys

CORE = {"base", "format", "transform", "layout", "hevc", "store"}
# What each module of src/ may include of the others.
MODULES = {
    "base": set(),
    "format": {"base"},
    "transform": {"base"},
    "layout": {"base", "format"},
    "hevc": {"base"},
    "store": {"base"},
    "profile": {"base", "transform"},
    "codec": (CORE | {"profile"}) - {"store"},
    "restore": CORE - {"store"} | {"codec"},
    "publish": CORE - {"store"} | {"codec", "profile", "restore"},
    "fetch": {"base", "codec", "store"},
    "calibrate": {"base", "transform", "layout"},
    "engines": {"base"},
}
# The public headers: which others each may include, and which modules may include it.
PUBLIC = {
    "version": (set(), set(MODULES)),
    "result": (set(), set(MODULES)),
    "kv": ({"result"}, set(MODULES)),
    "key": ({"kv", "result"}, set(MODULES)),
    "codec": ({"key", "kv", "result"},
              {"format", "profile", "codec", "restore", "publish", "fetch", "calibrate", "engines"}),
    "profile": ({"codec", "key", "kv", "result"},
                {"profile", "codec", "restore", "publish", "fetch", "calibrate", "engines"}),
    "calibrate": ({"codec", "profile", "key", "kv", "result"}, {"calibrate", "engines"}),
    "device": ({"codec", "key", "kv", "result"}, {"publish", "restore", "fetch"}),
    "restorer": ({"device", "codec", "kv", "result"}, {"fetch"}),
    "observe": ({"result"}, {"base", "fetch"}),
    "planner": ({"profile", "result"}, {"fetch"}),
    "scheduler": ({"key", "result"}, {"fetch"}),
    "adaptive": ({"fetch", "observe", "planner", "restorer"}, {"fetch", "engines"}),
    "store": ({"result"}, {"store", "fetch", "engines"}),
    "fetch": ({"codec", "profile", "store", "key", "kv", "result"},
              {"fetch", "calibrate", "engines"}),
    "llama": ({"calibrate", "fetch", "codec", "store", "key", "kv", "result"}, {"engines"}),
}
# Programs see the library as a user does; tests and benchmarks may look inside.
OPEN = {"tests", "bench"}
SUFFIXES = {".h", ".hpp", ".cpp", ".cc", ".c", ".cu", ".cuh", ".in"}
CUDA_HEADER = re.compile(r"^(cuda|cu\w*\.h|nvcuvid|cuviddec|cublas|cub/|ffnvcodec/)")
CUDA_FILE = re.compile(r"^src/(base/cuda\.h|fetch/.*|hevc/nvdec[^/]*\.cpp|.*_cuda\.cuh?)$")
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def public_name(target):
    match = re.fullmatch(r"kvcodec/(\w+)\.h", target)
    return match[1] if match else None


def complaint(path, bracket, target):
    """Why `path` (relative, posix) may not include `target`, or None."""
    top, *rest = path.split("/")
    module = rest[0] if top == "src" and len(rest) > 1 else None
    if CUDA_HEADER.match(target) and bracket == "<" and not CUDA_FILE.match(path):
        return "CUDA headers belong in *_cuda.cu, hevc/nvdec*.cpp, fetch/ and base/cuda.h"
    if target.startswith((".", "/")) or "/../" in target:
        return "include paths start at src/ or include/"
    folder = target.split("/")[0] if "/" in target else None
    public = public_name(target)
    if folder == "kvcodec" and public not in PUBLIC:
        return f"unknown public header; add {target} to {pathlib.Path(__file__).name}"
    if top == "include":
        if bracket == "<":
            return None
        if public is None:
            return "a public header includes public headers only"
        own = public_name("/".join(rest).removesuffix(".in"))
        if own not in PUBLIC:
            return f"unknown public header; add {path} to {pathlib.Path(__file__).name}"
        return None if public in PUBLIC[own][0] else f"{own}.h may not include {public}.h"
    if module:
        if module not in MODULES:
            return f"unknown module {module}; add it to {pathlib.Path(__file__).name}"
        if public:
            return None if module in PUBLIC[public][1] else f"{module} may not include {target}"
        if folder in MODULES and folder != module and folder not in MODULES[module]:
            return f"{module} may not include {folder}"
    elif top not in OPEN and folder in MODULES:
        return f"{top} may include public headers only"
    return None


def check(root):
    complaints, stems = [], {}
    for top in ("include", "src", "tools", "bench", "tests", "python"):
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in SUFFIXES or not file.is_file():
                continue
            path = file.relative_to(root).as_posix()
            for number, line in enumerate(file.read_text().splitlines(), 1):
                match = INCLUDE.match(line)
                why = complaint(path, *match.groups()) if match else None
                if why:
                    complaints.append(f'{path}:{number}: "{match[2]}": {why}')
            # Public headers share a base name with the sources behind them.
            if top != "include":
                stems.setdefault(file.name.split(".")[0], set()).add(file.parent)
    for stem, folders in sorted(stems.items()):
        if len(folders) > 1:
            names = ", ".join(sorted(f.relative_to(root).as_posix() for f in folders))
            complaints.append(f"{stem}.*: base names are unique in the tree; found in {names}")
    return complaints


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    complaints = check(root)
    print("\n".join(complaints) if complaints else "layers: clean")
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main())
