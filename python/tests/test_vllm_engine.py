# SPDX-License-Identifier: Apache-2.0
"""The connector in vLLM's CPU build, each row of engines/rows.py a test. One process a group; the
second group reads what the first one's process has published."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed")
ENGINES = pathlib.Path(__file__).parent / "engines"
sys.path.insert(0, str(ENGINES))


def rows_of(group):
    """Names of a group's rows, read from the source so that collecting starts no engine."""
    text = (ENGINES / "rows.py").read_text()
    part = text[text.index(f'"{group}": (') :]
    return [name.strip() for name in part[part.index("[") + 1 : part.index("]")].split(",")]


def run(script, *arguments, timeout=600):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # more threads wait for each other in so small a model
    done = subprocess.run([sys.executable, str(ENGINES / script), *map(str, arguments)], env=environment, timeout=timeout,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULTS ")]
    assert lines, f"{script} {arguments} ended with {done.returncode}:\n{done.stderr[-6000:]}"
    return json.loads(lines[0].removeprefix("RESULTS "))


@pytest.fixture(scope="session")
def groups(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vllm")
    subprocess.run([sys.executable, str(ENGINES / "tiny_model.py"), str(folder / "model")], check=True)
    results = {}

    def group(name):
        if name == "second":
            group("main")
        if name not in results:
            (folder / "file").touch()
            store = {"down": f"file://{folder}/file/below", "int8": f"file://{folder}/int8"}.get(name, f"file://{folder}/store")
            results[name] = run("rows.py", name, folder / "model", store)
        return results[name]

    return group


@pytest.mark.parametrize("group, row", [(g, row) for g in ("main", "second", "down", "int8") for row in rows_of(g)])
def test_row(groups, group, row):
    trouble = groups(group)[row]
    assert not trouble, trouble
