# SPDX-License-Identifier: Apache-2.0
import pathlib

import kvcodec
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "good"


@pytest.fixture(scope="session")
def root():
    return ROOT


def kv_like(layers, tokens, heads, dim, dtype=np.float16, seed=1):
    """[layer, 2, token, head, dim] that looks a little like a cache: channels differ in mean and
    scale, tokens follow each other slowly."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((layers, 2, tokens, heads, dim), dtype=np.float32)
    for t in range(1, tokens):
        noise[:, :, t] = 0.9 * noise[:, :, t - 1] + 0.4 * noise[:, :, t]
    scale = rng.uniform(0.2, 3, (layers, 2, 1, heads, dim)).astype(np.float32)
    return (noise * scale + 2 * rng.standard_normal(scale.shape, dtype=np.float32)).astype(dtype)


@pytest.fixture
def kv():
    return kv_like(3, 96, 2, 16)


@pytest.fixture(scope="session")
def golden():
    """A chunk of a real model's cache with the bytes it must decode to: golden("name")."""

    def load(name):
        return (GOLDEN / f"{name}.kvc").read_bytes(), (GOLDEN / f"{name}.raw").read_bytes()

    return load


@pytest.fixture(params=["mem", "file"])
def store(request, tmp_path):
    uri = "mem:" if request.param == "mem" else f"file://{tmp_path}/store"
    return kvcodec.open_store(uri)


SUMMARY = []


@pytest.fixture(scope="session")
def summary():
    """Lines that are shown at the end whether tests pass or not."""
    return SUMMARY.append


def pytest_terminal_summary(terminalreporter):
    for line in SUMMARY:
        terminalreporter.write_line(line)
