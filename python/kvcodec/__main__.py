# SPDX-License-Identifier: Apache-2.0
"""python -m kvcodec: the command line, a program installed beside this module."""

import os
import pathlib
import sys


def main() -> None:
    program = pathlib.Path(__file__).parent / "bin" / "kvcodec"
    if not program.is_file():
        sys.exit(f"error: {program} is missing: was kvcodec installed with pip?")
    os.execv(program, [str(program), *sys.argv[1:]])


if __name__ == "__main__":
    main()
