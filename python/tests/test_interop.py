# SPDX-License-Identifier: Apache-2.0
"""The same objects through the C++ command line and the reference decoder, both ways."""

import json
import pathlib
import subprocess
import sys

import kvcodec
import numpy as np
import pytest
from kvcodec import Tier, arrays

from conftest import kv_like

CHUNK = 32


def cli(*arguments):
    command = [sys.executable, "-m", "kvcodec", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def kv():
    return kv_like(2, 96, 2, 16, np.float32)


@pytest.fixture
def cache_file(tmp_path, kv):
    """The cache as a .safetensors file that `kvcodec publish --kv` takes."""
    tokens = np.arange(1000, 1096, dtype=np.int32)
    tensors = {"key": ("F32", kv[:, 0]), "value": ("F32", kv[:, 1]), "tokens": ("I32", tokens)}
    header, data = {}, b""
    for name, (dtype, array) in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path = tmp_path / "kv.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path, list(map(int, tokens))


def test_the_module_is_the_command_line(tmp_path):
    assert cli("--version") == (0, f"kvcodec {kvcodec.__version__}\n", "")
    code, _, errors = cli("info", tmp_path / "nothing.kvc")
    assert code == 12 and "nothing.kvc" in errors


@pytest.mark.parametrize("tier", [Tier.EXACT, Tier.INT8])
def test_python_fetches_what_the_command_line_published(tmp_path, kv, cache_file, tier):
    path, tokens = cache_file
    uri = f"file://{tmp_path}/store"
    code, out, errors = cli("publish", "--store", uri, "--kv", path, "--model-name", "m", "--chunk-tokens", CHUNK,
                            "--tier", kvcodec.tier_name(tier), "--json")  # fmt: skip
    assert code == 0, errors
    ns = bytes.fromhex(json.loads(out)["namespace"])
    store = kvcodec.open_store(uri)
    assert kvcodec.match_prefix(store, ns, tokens, kvcodec.tier_name(tier), CHUNK) == 96
    target = np.zeros_like(kv)
    report = kvcodec.fetch_prefix(store, ns, tokens, arrays.from_array(target), rendition=kvcodec.tier_name(tier),
                                  chunk_tokens=CHUNK)  # fmt: skip
    assert report.tokens_restored == 96
    assert np.array_equal(target, kv) if tier == Tier.EXACT else np.abs(target - kv).max() < 0.2


def test_the_command_line_fetches_what_python_published(tmp_path, kv, cache_file):
    _, tokens = cache_file
    uri = f"file://{tmp_path}/store"
    cache = arrays.from_array(kv)
    ns = kvcodec.namespace_digest("m", cache.shape)
    kvcodec.publish_prefix(kvcodec.open_store(uri), ns, tokens, cache, chunk_tokens=CHUNK)
    ids, out = tmp_path / "ids.json", tmp_path / "out.npy"
    ids.write_text(json.dumps(tokens))
    code, _, errors = cli("fetch", "--store", uri, "--namespace", ns.hex(), "--tokens", ids, "-o", out, "--chunk-tokens", CHUNK)
    assert code == 0, errors
    assert np.array_equal(np.load(out), kv)


@pytest.mark.parametrize("tier", [Tier.EXACT, Tier.INT8])
def test_the_reference_decoder_reads_what_python_encoded(tmp_path, root, kv, tier):
    sys.path.insert(0, str(root / "tools" / "reference"))
    try:
        reference = pytest.importorskip("kvcodec_ref", reason="the reference decoder needs xxhash")
    finally:
        sys.path.pop(0)
    cache = arrays.from_array(kv)
    object_ = kvcodec.encode_chunk(cache, tier=tier, rope=kvcodec.Rope.plain(kvcodec.RopeStyle.NEOX, 16, 1e4))
    try:
        _, elements = reference.decode(object_)
    except FileNotFoundError as error:
        pytest.skip(f"the reference decoder needs ffmpeg: {error}")
    target = arrays.empty(cache.shape, cache.tokens)
    kvcodec.decode_chunk(object_, target)
    for ours, theirs in zip(arrays.views(target), elements):
        assert np.array_equal(ours.view(np.uint32), theirs)


def test_one_key_for_the_same_cause(cache_file, kv, tmp_path):
    """The namespace that publish --kv prints is namespace_digest() of the same fields."""
    path, tokens = cache_file
    shape = arrays.from_array(kv).shape
    for salt in ("", "tenant"):
        code, out, errors = cli("publish", "--store", f"file://{tmp_path}/s", "--kv", path, "--model-name", "m", "--salt", salt, "--json")
        assert code == 0, errors
        assert json.loads(out)["namespace"] == kvcodec.namespace_digest("m", shape, salt=salt).hex()


def test_the_example_runs(tmp_path, root):
    example = root / "python" / "examples" / "share_a_prefix.py"
    done = subprocess.run([sys.executable, str(example)], cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True)
    assert "restored bit for bit: True" in done.stdout and not pathlib.Path(tmp_path, "store").exists()
