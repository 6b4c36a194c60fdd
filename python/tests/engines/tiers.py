# SPDX-License-Identifier: Apache-2.0
"""What a real model says after prefixes of a tier: greedy tokens against its own cache's. Prints JSON.

Usage: tiers.py MODEL STORE TIER PROMPT_FILE
"""

import json
import sys
import time

from engine import Engine


def main():
    model, store, tier, text = sys.argv[1:5]
    profile = {"profile": "identity"} if tier not in ("exact", "int8") else {}
    engine = Engine(model, store, tokenizer=True, tier=tier, chunk_tokens=128, **profile)
    ids = engine.llm.get_tokenizer()(open(text).read()).input_ids
    [(own, cached)] = engine.generate(ids, tokens=32)
    assert cached == 0
    engine.settle()
    engine.forget()
    began = time.monotonic()
    [(restored, cached)] = engine.generate(ids, tokens=32)
    seconds = time.monotonic() - began
    agree = next((i for i, (a, b) in enumerate(zip(own, restored)) if a != b), len(own))
    stored = sum(engine.objects().values())
    values = cached // 128 * 128 * engine.worker()._loader._layout.shape.token_bytes // 4
    print("RESULTS", json.dumps({"prompt": len(ids), "cached": cached, "agree": agree, "seconds": seconds,
                                 "bits": 8 * stored / values}), flush=True)  # fmt: skip
    engine.close()


if __name__ == "__main__":
    main()
