# SPDX-License-Identifier: Apache-2.0
"""A KV connector for vLLM: docs/connectors.md.

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "KvCodecConnector",
        "kv_connector_module_path": "kvcodec.vllm", "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"store": "file:///var/cache/kv"}}'
"""

from .connector import KvCodecConnector

__all__ = ["KvCodecConnector"]
