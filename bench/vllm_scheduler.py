#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the vLLM connector costs the scheduler: seconds a step spent in its methods, with vLLM's own
scheduler, many waiting requests and a full batch.

Usage: vllm_scheduler.py [--waiting N] [--running N] [--steps N]     in scripts/install-python's venv
"""

import argparse
import functools
import os
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python" / "tests" / "engines"))
from engine import BLOCK, CHUNK, transfer_config  # noqa: E402
from tiny_model import make  # noqa: E402

HOOKS = ("on_new_request", "get_num_new_matched_tokens", "update_state_after_alloc", "build_connector_meta",
         "update_connector_output", "request_finished", "get_kv_connector_stats", "take_events")  # fmt: skip


def make_scheduler(folder, running, store):
    import torch
    from vllm.config import KVTransferConfig
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    make(folder)
    args = EngineArgs(model=str(folder), skip_tokenizer_init=True, dtype="float32", enforce_eager=True, block_size=BLOCK, max_model_len=1024,
                      max_num_seqs=running, max_num_batched_tokens=8192, enable_prefix_caching=True,
                      kv_transfer_config=KVTransferConfig(**transfer_config(store)))  # fmt: skip
    config = args.create_engine_config()
    blocks = running * 40
    config.cache_config.num_gpu_blocks = blocks
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=2, head_size=32, dtype=torch.float32)
    names = [f"model.layers.{i}.self_attn.attn" for i in range(3)]
    kv = KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(names, spec)])
    return Scheduler(vllm_config=config, kv_cache_config=kv, structured_output_manager=StructuredOutputManager(config),
                     block_size=BLOCK, hash_block_size=BLOCK, log_stats=True)  # fmt: skip


class Meter:
    """Times the connector's methods, those that call another among them once."""

    def __init__(self, connector):
        self.seconds, self.calls, self.inside = 0.0, 0, False
        for name in HOOKS:
            setattr(connector, name, self.timed(getattr(connector, name)))

    def timed(self, call):
        @functools.wraps(call)
        def wrapper(*arguments, **options):
            if self.inside:
                return call(*arguments, **options)
            self.inside, began = True, time.perf_counter()
            try:
                return call(*arguments, **options)
            finally:
                self.seconds += time.perf_counter() - began
                self.calls += 1
                self.inside = False

        return wrapper

    def take(self):
        taken, self.seconds = self.seconds, 0.0
        return taken


def request(i, tokens, hasher):
    from vllm import SamplingParams
    from vllm.v1.request import Request

    parameters = SamplingParams(max_tokens=400, ignore_eos=True, temperature=0)
    return Request(request_id=str(i), prompt_token_ids=[(7 * j * j + i) % 500 + 4 for j in range(tokens)], sampling_params=parameters,
                   pooling_params=None, block_hasher=hasher)  # fmt: skip


def outcome(output):
    from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput

    names = list(output.num_scheduled_tokens)
    return ModelRunnerOutput(req_ids=names, req_id_to_index={n: i for i, n in enumerate(names)}, sampled_token_ids=[[5] for _ in names],
                             kv_connector_output=KVConnectorOutput())  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waiting", type=int, default=1000)
    parser.add_argument("--running", type=int, default=64)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash

    with tempfile.TemporaryDirectory() as work:
        scheduler = make_scheduler(pathlib.Path(work) / "model", options.running, f"file://{work}/store")
        meter = Meter(scheduler.connector)
        hashing = get_hash_fn_by_name("sha256")
        init_none_hash(hashing)
        hasher = get_request_block_hasher(BLOCK, hashing)
        requests = [request(i, 4 * CHUNK + 10, hasher) for i in range(options.running + options.waiting)]
        for r in requests:
            scheduler.add_request(r)
        arriving = meter.take() / len(requests)
        steps, phases = [], {"a batch fills": [], "decoding, all others waiting": []}
        while len(phases["decoding, all others waiting"]) < options.steps:
            output = scheduler.schedule()
            scheduler.update_from_output(output, outcome(output))
            filling = len(scheduler.running) < options.running or output.scheduled_new_reqs
            phases["a batch fills" if filling else "decoding, all others waiting"].append(meter.take())
            steps.append(output)
            assert len(scheduler.waiting) + len(scheduler.running) + len(scheduler.kv_holding_waiting) >= options.waiting
        print(f"{options.waiting} waiting, {options.running} running; microseconds in the connector: {1e6 * arriving:.1f} a request that arrives")
        print("| a step | steps | median | 99th percentile | most |\n|---|---:|---:|---:|---:|")
        for name, seconds in phases.items():
            ordered = sorted(1e6 * s for s in seconds)
            print(f"| {name} | {len(ordered)} | {statistics.median(ordered):.1f} | {ordered[int(0.99 * (len(ordered) - 1))]:.1f} | {ordered[-1]:.1f} |")
        sys.stdout.flush()
        scheduler.shutdown()
        os._exit(0)  # engines leave threads behind


if __name__ == "__main__":
    main()
