# SPDX-License-Identifier: Apache-2.0
"""The package as it is installed: names, types, documentation."""

import inspect
import pathlib
import subprocess
import sys

import kvcodec
import pytest
from kvcodec import _native

FOLDER = pathlib.Path(kvcodec.__file__).parent


def test_everything_public_is_documented():
    missing = []
    for name in kvcodec.__all__:
        thing = getattr(kvcodec, name)
        if inspect.isroutine(thing) and not (thing.__doc__ or "").strip():
            missing.append(name)
    assert not missing


def test_stubs_are_those_of_the_module(root, tmp_path):
    """To mend: python -m nanobind.stubgen -m kvcodec._native -o python/kvcodec/_native.pyi"""
    pytest.importorskip("nanobind")
    out = tmp_path / "_native.pyi"
    subprocess.run([sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "kvcodec._native", "-o", str(out)], check=True)
    assert out.read_text() == (root / "python" / "kvcodec" / "_native.pyi").read_text()


def test_stubs_name_no_unknown_type():
    text = (FOLDER / "_native.pyi").read_text()
    assert "kvcodec::" not in text and "std::" not in text


def test_types_hold(root):
    pytest.importorskip("mypy")
    done = subprocess.run([sys.executable, "-m", "mypy", "--config-file", str(root / "pyproject.toml"), "--no-error-summary",
                           "--cache-dir=/dev/null", "-p", "kvcodec"], stdout=subprocess.PIPE, text=True, cwd="/", check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_version_is_that_of_the_library(root):
    assert f"project(kvcodec VERSION {kvcodec.__version__} " in (root / "CMakeLists.txt").read_text()
    assert _native.version() == kvcodec.__version__


def test_importing_it_loads_neither_torch_nor_vllm():
    code = "import kvcodec, sys; print([m for m in ('torch', 'vllm', 'transformers') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout == "[]\n"
