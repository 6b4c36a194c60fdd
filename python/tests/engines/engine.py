# SPDX-License-Identifier: Apache-2.0
"""A vLLM engine in this process, with the connector, and what tests do with it. Import it first: it
sets the environment that vLLM reads."""

import os

os.environ.update({"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "TORCH_COMPILE_DISABLE": "1",
                   "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "WARNING"),
                   "VLLM_CPU_OMP_THREADS_BIND": "nobind"})  # fmt: skip

import time  # noqa: E402

import kvcodec  # noqa: E402

BLOCK, CHUNK = 32, 64


def transfer_config(store, *, module="kvcodec.vllm", **extra):
    options = {"store": store, "chunk_tokens": CHUNK, "min_tokens": 1, "lookup_timeout_s": 60.0, **extra}
    return {"kv_connector": "KvCodecConnector", "kv_connector_module_path": module, "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute", "kv_connector_extra_config": options}  # fmt: skip


class Engine:
    def __init__(self, model, store=None, *, tokenizer=False, vllm=None, **extra):
        from vllm import LLM
        from vllm.config import KVTransferConfig

        options = dict(model=model, enforce_eager=True, dtype="float32", max_model_len=1024, block_size=BLOCK,
                       enable_prefix_caching=True, max_num_seqs=8, max_num_batched_tokens=1024, seed=0,
                       kv_cache_memory_bytes=64 << 20, disable_log_stats=False, skip_tokenizer_init=not tokenizer)  # fmt: skip
        options.update(vllm or {})
        self.uri = store
        if store is not None:
            options["kv_transfer_config"] = KVTransferConfig(**transfer_config(store, **extra))
        self.llm = LLM(**options)
        self.names = 0

    @property
    def connector(self):
        """The scheduler's half."""
        return self.llm.llm_engine.engine_core.engine_core.scheduler.connector

    def worker(self):
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        return get_kv_transfer_group()

    def forget(self):
        """Empties vLLM's own prefix cache, so that only the store has anything."""
        assert self.llm.reset_prefix_cache()

    def generate(self, prompts, tokens=12, salt=None):
        """[(greedy tokens, prompt tokens that were not computed)]."""
        from vllm import SamplingParams

        many = prompts if isinstance(prompts[0], list) else [prompts]
        inputs = [{"prompt_token_ids": p, **({"cache_salt": salt} if salt else {})} for p in many]
        out = self.llm.generate(inputs, SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False),
                                use_tqdm=False)  # fmt: skip
        return [(list(o.outputs[0].token_ids), o.num_cached_tokens) for o in out]

    def settle(self):
        """Waits until what was to be saved is saved, and lets the scheduler know."""
        saver = self.worker()._saver
        deadline = time.monotonic() + 120
        while saver._futures and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not saver._futures

    def objects(self):
        return {s.name: s.bytes for s in kvcodec.open_store(self.uri).list()}

    def metrics(self):
        """The connector's counters as Prometheus has them."""
        return {m.name.removeprefix("vllm:kvcodec_"): m.value for m in self.llm.get_metrics()
                if m.name.startswith("vllm:kvcodec_") and hasattr(m, "value")}  # fmt: skip

    def close(self):
        self.llm.llm_engine.engine_core.shutdown()


def prompt(tokens, seed=0):
    return [(7 * i * i + 13 * i + 5 + 31 * seed + i * seed) % 500 + 4 for i in range(tokens)]
