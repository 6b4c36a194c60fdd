# SPDX-License-Identifier: Apache-2.0
"""How the reference decoder refuses."""


class Corrupt(Exception):
    exit_status = 3


class Unsupported(Exception):
    exit_status = 4


def check(condition, what, offset, expected, found):
    if not condition:
        raise Corrupt(f"{what} at offset {offset}: expected {expected}, found {found}")
