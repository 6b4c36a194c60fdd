# SPDX-License-Identifier: Apache-2.0
"""KV caches of language models as lossless HEVC pictures: encode, decode, publish, fetch.

    import kvcodec
    from kvcodec import arrays

    store = kvcodec.open_store("file:///var/cache/kv")
    cache = arrays.from_array(kv)                     # [layer, 2, token, head, dim], numpy or torch
    ns = kvcodec.namespace_digest("my-model", cache.shape)
    kvcodec.publish_prefix(store, ns, tokens, cache, tier=kvcodec.Tier.INT8)

    target = arrays.empty(cache.shape, len(tokens))
    report = kvcodec.fetch_prefix(store, ns, tokens, target, rendition="int8")
    report.tokens_restored                            # compute the rest

Engines: kvcodec.vllm (a KV connector), kvcodec.hf (DynamicCache of transformers).
"""

from . import arrays, errors, evaluate
from ._native import (
    ChunkId,
    ChunkInfo,
    DecodeOptions,
    DeviceRestorer,
    DType,
    FetchReport,
    GcReport,
    GroupDistortion,
    KvCache,
    KvGeometry,
    KvKind,
    KvShape,
    ObjectStat,
    PictureInfo,
    Profile,
    ProfileTier,
    PublishReport,
    Rope,
    RopeStyle,
    StopSource,
    Store,
    Strides,
    Tier,
    chunk_info,
    chunk_key,
    chunk_keys,
    collect_garbage,
    decode_chunk,
    encode_chunk,
    fetch_prefix,
    limit_bandwidth,
    match_prefix,
    namespace_digest,
    object_name,
    open_store,
    publish_prefix,
    rendition_name,
    rendition_tier,
    sha256_file,
    tier_from_name,
    tier_name,
    verify_chunk,
    version,
)
from .errors import (
    Cancelled,
    Corrupt,
    DeviceError,
    InternalError,
    InvalidArgument,
    IoError,
    KvCodecError,
    NotFound,
    OutOfMemory,
    Unavailable,
    Unsupported,
)
from .fetching import Fetch, submit_fetch

__version__ = version()

__all__ = [name for name in dir() if not name.startswith("_") and name != "fetching"] + ["__version__"]
