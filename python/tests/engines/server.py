# SPDX-License-Identifier: Apache-2.0
"""`vllm serve` in a process of its own, asked through the OpenAI client."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "TORCH_COMPILE_DISABLE": "1",
               "VLLM_CPU_OMP_THREADS_BIND": "nobind"}  # fmt: skip


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, port):
        import openai

        self.base = f"http://127.0.0.1:{port}"
        self.client = openai.OpenAI(base_url=f"{self.base}/v1", api_key="none", max_retries=0, timeout=300)

    def ask(self, prompt, tokens=24):
        """(seconds to the first token, text, prompt tokens, those not computed)."""
        began, first, text, usage = time.monotonic(), None, "", None
        for event in self.client.completions.create(model="m", prompt=prompt, max_tokens=tokens, temperature=0, stream=True,
                                                    stream_options={"include_usage": True}):  # fmt: skip
            if event.choices:
                first = first or time.monotonic() - began
                text += event.choices[0].text
            usage = event.usage or usage
        return first, text, usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens or 0

    def metrics(self):
        """{name: value} of the counters of the connector and of external hits."""
        text = urllib.request.urlopen(f"{self.base}/metrics", timeout=30).read().decode()
        rows = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith(("vllm:kvcodec_", "vllm:external_prefix"))]
        return {name.split("{")[0].removeprefix("vllm:"): float(value) for name, value in rows}


@contextlib.contextmanager
def serve(model, log, *, connector=None, timeout=420):
    port = free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(model), "--served-model-name", "m", "--port", str(port),
               "--host", "127.0.0.1", "--dtype", "float32", "--enforce-eager", "--block-size", "32", "--max-model-len", "2048",
               "--max-num-seqs", "4", "--max-num-batched-tokens", "512", "--kv-cache-memory-bytes", str(192 << 20),
               "--enable-prompt-tokens-details"]  # fmt: skip
    if connector is not None:
        command += ["--kv-transfer-config", json.dumps(connector)]
    with open(log, "wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **ENVIRONMENT},
                                   start_new_session=True)  # fmt: skip
    try:
        deadline = time.monotonic() + timeout
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"vllm serve did not start:\n{open(log, errors='replace').read()[-5000:]}")
            time.sleep(0.3)
        yield Server(port)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
