# SPDX-License-Identifier: Apache-2.0
"""What makes two caches of vLLM interchangeable: the weights, the model's configuration, RoPE, the
tensor-parallel rank, the tenant and the LoRA adapter. All of it ends in the namespace of the keys.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
from typing import Any

from .._native import KvShape, Rope, namespace_digest, sha256_file
from ..engine_config import rope_of
from ..errors import InvalidArgument, Unsupported

WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".gguf")
MAX_REMEMBERED = 4096  # tenants whose namespaces are kept
# Of config.json: what says nothing about the numbers of a cache.
IRRELEVANT = ("_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache", "architectures")


def files_digest(folder: str) -> bytes:
    """SHA-256 over the names and SHA-256s of the weight files in a folder, or of a file alone.

    Hashing takes a second for about 1.5 GB; it is remembered in the user's cache folder by path, size
    and time of change.
    """
    path = pathlib.Path(folder)
    files = [path] if path.is_file() else sorted(p for p in path.iterdir() if p.suffix in WEIGHT_SUFFIXES)
    if not files:
        raise Unsupported(f"{folder}: no weight files to tell models apart; set the option weights to a SHA-256")
    total = hashlib.sha256()
    for file in files:
        total.update(f"{file.name}\0".encode() + _remembered_digest(file.resolve()))
    return total.digest()


def _remembered_digest(file: pathlib.Path) -> bytes:
    stat = file.stat()
    name = hashlib.sha256(f"{file}\0{stat.st_size}\0{stat.st_mtime_ns}\0{stat.st_ino}".encode()).hexdigest()
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    memory = pathlib.Path(base) / "kvcodec" / "weights" / name
    try:
        known = bytes.fromhex(memory.read_text())
        if len(known) == 32:
            return known
    except (OSError, ValueError):
        pass
    digest = sha256_file(str(file))
    try:
        memory.parent.mkdir(parents=True, exist_ok=True)
        temporary = memory.with_suffix(f".{os.getpid()}")
        temporary.write_text(digest.hex())
        temporary.replace(memory)
    except OSError:
        pass  # it is hashed again next time
    return digest


def model_folder(model: str) -> str:
    """Where the weights of a model given to vLLM are: a path, or a name in the Hugging Face cache."""
    if os.path.exists(model):
        return model
    try:
        from huggingface_hub import snapshot_download

        return str(snapshot_download(model, local_files_only=True))
    except Exception as error:
        raise Unsupported(f"{model}: its weight files are not found ({error}); set the option weights") from error


class Identity:
    """Namespaces of one model in one engine. Thread-safe after construction, which may take long."""

    def __init__(self, *, name: str, weights: bytes, config: dict[str, Any], shape: KvShape, rope: Rope, ranks: int,
                 salt: str, profile: bytes | None):  # fmt: skip
        kept = {key: value for key, value in config.items() if key not in IRRELEVANT}
        text = json.dumps(kept, sort_keys=True, default=str)
        self.model = f"{name} config {hashlib.sha256(text.encode()).hexdigest()[:16]}"
        self.weights, self.shape, self.rope, self.ranks = weights, shape, rope, ranks
        self.salt, self.profile = salt, profile
        self._known: dict[tuple[str | None, str], list[bytes]] = {}

    def namespaces(self, request_salt: str | None, lora: str) -> list[bytes]:
        """By rank. request_salt: vLLM's cache_salt; lora: "" or lora_identity()."""
        known = self._known.get((request_salt, lora))
        if known is not None:
            return known
        # Lengths keep ("a", "bc") and ("ab", "c") apart.
        salt = ""
        if self.salt or request_salt or lora:
            salt = "".join(f"{len(part)}:{part}" for part in (self.salt, request_salt or "", lora))
        result = [
            namespace_digest(self.model, self.shape, self.weights, self.rope, rank, self.ranks, salt, self.profile)
            for rank in range(self.ranks)
        ]
        if len(self._known) >= MAX_REMEMBERED:
            self._known = {}
        self._known[request_salt, lora] = result
        return result


def lora_identity(lora: Any) -> str:
    """Of a vLLM LoRARequest: name and the digest of its files, so that a new adapter under an old name
    finds nothing of the old one."""
    if lora is None:
        return ""
    path = getattr(lora, "lora_path", "") or ""
    if not os.path.exists(path):
        raise Unsupported(f"LoRA adapter {lora.lora_name}: {path} is no folder to identify it by")
    return f"{lora.lora_name} {files_digest(path).hex()}"


def identify(vllm_config: Any, settings: Any, shape: KvShape, ranks: int, profile: bytes | None) -> Identity:
    """Of the engine's model. Hashes its files where settings.weights does not say."""
    model_config = vllm_config.model_config
    if settings.weights:
        try:
            weights = bytes.fromhex(settings.weights)
        except ValueError:
            weights = b""
        if len(weights) != 32:
            raise InvalidArgument("kv_connector_extra_config: weights is no SHA-256 of 64 hexadecimal digits")
    else:
        load_format = str(getattr(vllm_config.load_config, "load_format", "auto"))
        if load_format == "dummy":
            raise Unsupported("load_format dummy: random weights have no files; set the option weights")
        weights = files_digest(model_folder(model_config.model))
    config = model_config.hf_config.to_dict()
    config["kv_cache_dtype"] = str(vllm_config.cache_config.cache_dtype)
    config["quantization"] = str(model_config.quantization)
    name = settings.model or pathlib.Path(model_config.model).name
    return Identity(name=name, weights=weights, config=config, shape=shape, rope=rope_of(model_config.hf_text_config),
                    ranks=ranks, salt=settings.salt, profile=profile)  # fmt: skip
