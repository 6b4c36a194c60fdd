# SPDX-License-Identifier: Apache-2.0
"""A real model, SmolLM2-135M-Instruct: `vllm serve` publishes, another `vllm serve` fetches."""

import hashlib
import os
import pathlib
import subprocess
import sys
import time

import kvcodec
import pytest

from test_vllm_engine import ENGINES, run

pytest.importorskip("vllm", reason="vLLM is not installed")
sys.path.insert(0, str(ENGINES))

QUESTION = "\n\n In one sentence, the text above is about"


@pytest.fixture(scope="session")
def smollm2(root):
    """The model as a Hugging Face folder, converted once and kept in the cache folder."""
    gguf, cache = os.environ.get("KVCODEC_TEST_MODEL"), os.environ.get("KVCODEC_CACHE")
    if not gguf or not cache:
        pytest.skip("KVCODEC_TEST_MODEL and KVCODEC_CACHE are not set: scripts/test sets them")
    script = root / "scripts" / "gguf_to_hf.py"
    folder = pathlib.Path(cache) / "models" / f"smollm2-hf-{hashlib.sha256(script.read_bytes()).hexdigest()[:8]}"
    if not folder.exists():
        made = folder.with_suffix(f".{os.getpid()}")
        subprocess.run([sys.executable, str(script), gguf, str(made)], check=True)
        made.rename(folder)
    return folder


@pytest.fixture(scope="session")
def text(root):
    return (root / "docs" / "architecture.md").read_text()[:2400] + QUESTION


def test_the_converted_model_speaks(smollm2):
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(smollm2)
    sample = "In 2024, KVCodec's 3 caches (10 Gb/s) were caf\u00e9-sized:\n\tdon't\u2026"
    assert tokenizer.decode(tokenizer(sample).input_ids) == sample
    model = transformers.AutoModelForCausalLM.from_pretrained(smollm2)
    ids = tokenizer("The capital of France is", return_tensors="pt").input_ids
    assert tokenizer.decode(model.generate(ids, max_new_tokens=2, do_sample=False)[0, -2:]).strip().startswith("Paris")


def test_a_server_answers_from_what_another_published(smollm2, text, tmp_path, summary):
    from engine import transfer_config
    from server import serve

    connector = transfer_config(f"file://{tmp_path}/store", chunk_tokens=256)
    with serve(smollm2, tmp_path / "a.log", connector=connector) as a:
        a.ask("Warm up.", 2)
        first, answer, prompt_tokens, cached = a.ask(text)
        assert cached == 0
        local, again, _, _ = a.ask(text)
        assert again == answer
        whole = prompt_tokens // 256
        deadline = time.monotonic() + 120
        while len(kvcodec.open_store(f"file://{tmp_path}/store").list()) < whole and time.monotonic() < deadline:
            time.sleep(0.1)
    objects = kvcodec.open_store(f"file://{tmp_path}/store").list()
    assert len(objects) == whole >= 2 and all(o.name.endswith("/exact") for o in objects)
    with serve(smollm2, tmp_path / "b.log", connector=connector) as b:
        b.ask("Warm up.", 2)
        fetched, restored, _, cached = b.ask(text)
        assert cached == whole * 256 and restored == answer
        b.ask("Another step, so that all counters are in.", 2)
        metrics = b.metrics()
        assert metrics["kvcodec_load_tokens_total"] == cached == metrics["external_prefix_cache_hits_total"]
        assert metrics["kvcodec_loads_total"] == 1 and metrics["kvcodec_load_corrupt_total"] == 0
    size = sum(o.bytes for o in objects)
    summary(f"vllm serve, SmolLM2-135M, {prompt_tokens} tokens, {cached} of them fetched ({size / 1e6:.1f} MB, exact), same 24 tokens:")
    summary(f"  TTFT s: computed {first:.2f}, vLLM's own cache {local:.2f}, another server's chunks {fetched:.2f}")


@pytest.mark.parametrize("tier, least", [("exact", 32), ("int8", 8), ("balanced", 0)])
def test_tiers_through_vllm(smollm2, text, tmp_path, summary, tier, least):
    (tmp_path / "prompt.txt").write_text(text)
    result = run("tiers.py", smollm2, f"file://{tmp_path}/store", tier, tmp_path / "prompt.txt")
    summary(f"  {tier:8} {result['cached']} of {result['prompt']} tokens fetched, {result['bits']:.2f} bits a value, "
            f"{result['agree']} of 32 greedy tokens as computed")  # fmt: skip
    assert result["cached"] == result["prompt"] // 128 * 128 and result["agree"] >= least
