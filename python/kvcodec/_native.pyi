"""The C++ library. Import kvcodec instead."""

from collections.abc import Sequence
import enum
from typing import Any

import numpy.typing
from typing_extensions import Buffer

import kvcodec.errors


def version() -> str:
    """Of the library."""

def error_codes() -> list[str]:
    """Names of the library's error codes."""

class DType(enum.Enum):
    """Element type of a KV cache."""

    F16 = 1
    """IEEE 754 binary16"""

    BF16 = 2
    """upper half of a binary32"""

    F32 = 3
    """IEEE 754 binary32"""

class KvKind(enum.Enum):
    """Keys or values."""

    KEY = 0

    VALUE = 1

class KvShape:
    """What the numbers of one token are, on one tensor-parallel rank."""

    def __init__(self, layers: int, kv_heads: int, key_dim: int, value_dim: int | None = None, dtype: DType = DType.F16) -> None:
        """
        key_dim and value_dim: elements of one head; value_dim defaults to key_dim, and is 0 where
        the cache keeps no values (MLA).
        """

    @property
    def layers(self) -> int: ...

    @property
    def kv_heads(self) -> int: ...

    @property
    def key_dim(self) -> int: ...

    @property
    def value_dim(self) -> int: ...

    @property
    def dtype(self) -> DType: ...

    @property
    def token_bytes(self) -> int:
        """Bytes of one token in all layers, keys and values."""

    def __eq__(self, arg: object, /) -> bool: ...

    def __repr__(self) -> str: ...

class RopeStyle(enum.Enum):
    """Which elements of a head are rotated together."""

    NONE = 0

    INTERLEAVED = 1
    """pairs (2i, 2i+1): GPT-J, llama.cpp NORM"""

    NEOX = 2
    """pairs (i, i + rotary_dims/2): Hugging Face, vLLM"""

class Rope:
    """
    How keys were rotated, so that tiers below exact can undo it. Rope() is none.
    """

    def __init__(self) -> None: ...

    @staticmethod
    def plain(style: RopeStyle, rotary_dims: int, base: float) -> Rope:
        """Unscaled RoPE: frequencies base^(-2i/rotary_dims)."""

    @staticmethod
    def from_frequencies(style: RopeStyle, radians_per_token: Sequence[float]) -> Rope:
        """
        Any scaling (linear, NTK, YaRN, Llama 3): the angular frequencies after it, one a rotated
        pair. Raises InvalidArgument where one is not finite or not below 2 pi.
        """

    @property
    def style(self) -> RopeStyle: ...

    @property
    def rotary_dims(self) -> int: ...

    @property
    def phase_steps(self) -> list[int]:
        """Turns a token, in units of 2^-64; rotary_dims / 2 of them."""

    def __eq__(self, arg: object, /) -> bool: ...

class Strides:
    """Bytes between neighbours of each axis, and of the first element."""

    def __init__(self, offset: int = 0, layer: int = 0, token: int = 0, head: int = 0, dim: int = 0) -> None: ...

    @property
    def offset(self) -> int: ...

    @property
    def layer(self) -> int: ...

    @property
    def token(self) -> int: ...

    @property
    def head(self) -> int: ...

    @property
    def dim(self) -> int: ...

class KvGeometry:
    """
    Where the elements of a KV cache are in a piece of memory. The element (kind, layer,
    token, head, dim) is at byte
      s.offset + layer*s.layer + block*block_stride + (token % block_tokens)*s.token
      + head*s.head + dim*s.dim,    s = key or value,
      block = block_table[token // block_tokens], or token // block_tokens without a table.
    Usually made by kvcodec.arrays from shapes and strides.
    """

    def __init__(self, shape: KvShape, tokens: int, key: Strides, value: Strides, block_tokens: int = 0, block_stride: int = 0, block_table: Sequence[int] = []) -> None:
        """block_tokens 0: one block holds all tokens."""

    @staticmethod
    def contiguous(shape: KvShape, tokens: int) -> KvGeometry:
        """The canonical order [layer][K|V][token][head][dim], nothing between."""

    @property
    def shape(self) -> KvShape: ...

    @property
    def tokens(self) -> int: ...

    @property
    def key(self) -> Strides: ...

    @property
    def value(self) -> Strides: ...

    @property
    def block_tokens(self) -> int: ...

    @property
    def block_stride(self) -> int: ...

    @property
    def block_table(self) -> list[int]: ...

    def element_offset(self, kind: KvKind, layer: int, token: int, head: int, dim: int) -> int:
        """Byte of an element. Nothing is checked."""

    def validate(self, memory_bytes: int) -> None:
        """Raises InvalidArgument where an element is not inside so many bytes."""

class KvCache:
    """
    A KV cache in the memory of an array or tensor, which it keeps alive and never copies.
    kvcodec.arrays makes them from shapes and strides. While a call writes to it, nothing else
    may use the tokens being written.
    """

    def __init__(self, memory: object, geometry: KvGeometry) -> None:
        """
        memory: a C-contiguous array (numpy, torch, anything with DLPack or the buffer protocol) of any
        type; only its bytes count. Raises InvalidArgument where the geometry does not fit.
        """

    @property
    def memory(self) -> Any:
        """What was given."""

    @property
    def geometry(self) -> KvGeometry: ...

    @property
    def shape(self) -> KvShape: ...

    @property
    def tokens(self) -> int: ...

    @property
    def writable(self) -> bool: ...

    @property
    def on_host(self) -> bool: ...

    @property
    def nbytes(self) -> int:
        """Bytes of the memory."""

def namespace_digest(model: str, shape: KvShape, weights: bytes | None = None, rope: Rope = ..., rank: int = 0, ranks: int = 1, salt: str = '', profile: bytes | None = None) -> bytes:
    """
    SHA-256 of everything that makes two caches incompatible (docs/format.md, "Namespace").
    weights, profile: digests of 32 bytes; None: zeros. rank of ranks: tensor parallelism.
    salt: the tenant.
    """

def chunk_keys(namespace: bytes, tokens: numpy.typing.ArrayLike, chunk_tokens: int = 256) -> list[bytes]:
    """
    Keys of the whole chunks of a token sequence, each hashed over all tokens before it too. A
    remainder of fewer than chunk_tokens has no key.
    """

def chunk_key(parent: bytes, tokens: numpy.typing.ArrayLike) -> bytes:
    """
    Key of one chunk of any length after `parent` (the namespace before the first).
    """

def object_name(namespace: bytes, key: bytes, rendition: str) -> str:
    """Name of an object in a store: "<namespace>/<key>/<rendition>"."""

def sha256_file(path: str) -> bytes:
    """SHA-256 of a whole file, streamed. Raises NotFound or IoError."""

class Tier(enum.Enum):
    """How much of a cache is kept, finest first."""

    EXACT = 1
    """every bit, NaN payloads and signed zeros included"""

    INT8 = 2
    """8-bit codes of un-rotated, centred values; finite input only"""

    HIGH = 3
    """calibrated; needs a profile; finite input only, as the next two"""

    BALANCED = 4

    SMALL = 5

def tier_name(tier: Tier) -> str:
    """"exact", "int8", "high", "balanced" or "small"."""

def tier_from_name(name: str) -> Tier:
    """Raises InvalidArgument."""

class ProfileTier:
    """What a profile says of a calibrated tier."""

    @property
    def step(self) -> float: ...

    @property
    def dead_zone(self) -> float: ...

    @property
    def bits_per_value(self) -> float:
        """expected, of whole objects; 0: not known"""

    @property
    def kl(self) -> float:
        """expected, of the continuation, in nats a token; 0: not known"""

class Profile:
    """
    What the calibrated tiers know of a model (docs/profile.md). Immutable; any number of
    threads may use one.
    """

    @staticmethod
    def load(path: str) -> Profile:
        """
        Reads a file and checks all of it. Raises NotFound, IoError, Corrupt or Unsupported.
        """

    @staticmethod
    def parse(file: Buffer) -> Profile:
        """As load, from the file's bytes."""

    @staticmethod
    def identity(shape: KvShape, rope: Rope = ..., model: str = '') -> Profile:
        """
        What needs no calibration: worse than a calibrated one by a factor, and serves any model.
        """

    def to_bytes(self) -> bytes:
        """The file's bytes."""

    @property
    def digest(self) -> bytes:
        """SHA-256 of the file."""

    @property
    def is_identity(self) -> bool: ...

    @property
    def model(self) -> str:
        """A name, for people."""

    @property
    def weights(self) -> bytes:
        """SHA-256 of the weights' bytes; zeros: any."""

    @property
    def shape(self) -> KvShape:
        """dtype apart: a profile serves all."""

    @property
    def rope(self) -> Rope: ...

    @property
    def calibration(self) -> str:
        """JSON: texts, tokens, licences."""

    def tier(self, tier: Tier) -> ProfileTier: ...

    def check_shape(self, shape: KvShape) -> None:
        """
        Raises InvalidArgument where this is the profile of another model's shape.
        """

    def tier_within(self, kl: float) -> Tier:
        """
        The coarsest calibrated tier whose expected KL is at most `kl` nats a token. Raises
        InvalidArgument where there is none, or the profile knows no KL.
        """

def rendition_name(tier: Tier, profile: Profile | None = None) -> str:
    """
    A rendition's name in a store: "exact", "int8", "balanced-0123456789abcdef".
    """

def rendition_tier(rendition: str) -> Tier:
    """The tier of a rendition's name. Raises InvalidArgument."""

class DecodeOptions:
    """What a reader expects of an object, and its limits."""

    def __init__(self, *, expected: ChunkId | None = None, expected_tier: Tier | None = None, lowest_tier: Tier | None = None, profile: Profile | None = None, position: int | None = None, max_object_bytes: int = 4294967296, max_decoded_bytes: int = 4294967296, threads: int = 0) -> None:
        """
        expected: the chunk that the object must be. expected_tier, lowest_tier: its tier, or the lowest
        (coarsest) that is accepted. profile: that of a calibrated tier. position: of the first token in
        the sequence it is restored into, where that is another than it was encoded from. threads 0: all
        cores. What does not match is Corrupt.
        """

class ChunkId:
    """What a chunk is a part of, checked on restore."""

    def __init__(self, namespace: bytes, key: bytes, first_token: int = 0) -> None: ...

    @property
    def namespace(self) -> bytes: ...

    @property
    def key(self) -> bytes: ...

    @property
    def first_token(self) -> int: ...

    def __eq__(self, arg: object, /) -> bool: ...

class PictureInfo:
    """One stored picture or raw plane."""

    @property
    def kind(self) -> KvKind: ...

    @property
    def plane(self) -> int: ...

    @property
    def first_row(self) -> int: ...

    @property
    def rows(self) -> int: ...

    @property
    def width(self) -> int: ...

    @property
    def height(self) -> int: ...

    @property
    def coding(self) -> str: ...

    @property
    def offset(self) -> int: ...

    @property
    def bytes(self) -> int: ...

class GroupDistortion:
    """Calibrated tiers: how far a group of layers is from the exact values."""

    @property
    def kind(self) -> KvKind: ...

    @property
    def first_layer(self) -> int: ...

    @property
    def layers(self) -> int: ...

    @property
    def components(self) -> int: ...

    @property
    def live_rows(self) -> int: ...

    @property
    def step(self) -> float: ...

    @property
    def noise(self) -> float:
        """mean square of the error, a token and channel"""

    @property
    def relative_error(self) -> float: ...

class ChunkInfo:
    """What the header of a chunk says."""

    @property
    def format_version(self) -> int: ...

    @property
    def tier(self) -> Tier: ...

    @property
    def id(self) -> ChunkId: ...

    @property
    def profile(self) -> bytes:
        """SHA-256 of the profile; zeros: none"""

    @property
    def shape(self) -> KvShape: ...

    @property
    def rope(self) -> Rope: ...

    @property
    def tokens(self) -> int: ...

    @property
    def sink_tokens(self) -> int: ...

    @property
    def escapes(self) -> int: ...

    @property
    def header_bytes(self) -> int: ...

    @property
    def object_bytes(self) -> int: ...

    @property
    def pictures(self) -> list[PictureInfo]: ...

    @property
    def distortions(self) -> list[GroupDistortion]: ...

    @property
    def values(self) -> int:
        """Elements that the chunk restores."""

    @property
    def bits_per_value(self) -> float:
        """Of the whole object."""

def encode_chunk(source: KvCache, first: int = 0, count: int | None = None, id: ChunkId | None = None, *, tier: Tier = Tier.EXACT, rope: Rope = ..., profile: Profile | None = None, sink_tokens: int = 4, max_picture_height: int = 2048, threads: int = 0, verify: bool = True, noise_factor: float = 1.5) -> bytes:
    """
    Tokens [first, first + count) of `source` as one object (docs/format.md); count None: all.
    Equal input and options give equal bytes. The GIL is released.
    tier: a finer one is taken for a chunk whose noise is above noise_factor times what the profile
    expects. sink_tokens: positions below are stored exactly, not tier exact. threads 0: all cores.
    Raises InvalidArgument, for a value that is not finite too, unless tier is exact.
    """

def decode_chunk(object: Buffer, target: KvCache, first_token: int = 0, options: DecodeOptions = ...) -> None:
    """
    Restores an object into tokens [first_token, first_token + its tokens) of `target`. Everything is
    checked first: on any error nothing was written. The GIL is released.
    Raises Corrupt for wrong bytes, InvalidArgument where the target's shape is not the object's.
    """

def verify_chunk(object: Buffer, options: DecodeOptions = ...) -> None:
    """All checks of decode_chunk, decoding included, into nothing."""

def chunk_info(object: Buffer) -> ChunkInfo:
    """
    Reads and checks a header; `object` may be the beginning of one. Raises Corrupt, which names the
    bytes needed where there are too few.
    """

class ObjectStat:
    @property
    def name(self) -> str: ...

    @property
    def bytes(self) -> int: ...

    @property
    def last_used(self) -> float:
        """Seconds since 1970 of the last put or get, as well as the store knows."""

class Store:
    """
    Keeps objects by name (docs/stores.md). Names are 1 to 255 bytes of [a-z0-9._/-]. All methods
    are thread-safe, release the GIL, and raise InvalidArgument, Unavailable or IoError; a reader
    sees an object whole or not at all.
    """

    def get(self, name: str, max_bytes: int = 4294967296) -> bytes:
        """
        A whole object. Raises NotFound, or Corrupt where it is larger than max_bytes.
        """

    def get_into(self, name: str, out: Buffer, offset: int = 0) -> int:
        """
        Reads up to len(out) bytes from `offset` into a writable buffer; returns how many, fewer only at
        the object's end.
        """

    def put(self, name: str, object: Buffer) -> None:
        """Stores or replaces an object, atomically and durably."""

    def stat(self, name: str) -> ObjectStat:
        """Raises NotFound."""

    def list(self, prefix: str = '') -> list[ObjectStat]:
        """All objects whose names start with `prefix`, sorted by name."""

    def remove(self, name: str) -> None:
        """Raises NotFound."""

    def __contains__(self, arg: str, /) -> bool: ...

def open_store(uri: str, max_bytes: int = 0) -> Store:
    """
    "mem:" (lives as long as the Store), "file:///absolute/path" (created where missing), or another
    scheme of docs/stores.md. max_bytes: beyond, the least recently used objects are evicted; 0: never.
    Raises Unsupported, which names the schemes of this build.
    """

def limit_bandwidth(store: Store, bits_per_second: float) -> Store:
    """The same store as if behind a link, for demos and tests."""

class GcReport:
    @property
    def objects_before(self) -> int: ...

    @property
    def bytes_before(self) -> int: ...

    @property
    def objects_removed(self) -> int: ...

    @property
    def bytes_removed(self) -> int: ...

def collect_garbage(store: Store, max_bytes: int) -> GcReport:
    """
    Removes the least recently used objects until at most max_bytes remain.
    """

class PublishReport:
    """
    Of `chunks`, `written` were not there before; `finer` of these
    were coded at a finer tier than asked for.
    """

    @property
    def chunks(self) -> int: ...

    @property
    def written(self) -> int: ...

    @property
    def finer(self) -> int: ...

    @property
    def tokens(self) -> int: ...

    @property
    def raw_bytes(self) -> int: ...

    @property
    def object_bytes(self) -> int: ...

    @property
    def encode_seconds(self) -> float: ...

    @property
    def store_seconds(self) -> float: ...

class FetchReport:
    @property
    def tokens_restored(self) -> int:
        """Leading tokens of the target that are valid."""

    @property
    def chunks(self) -> int: ...

    @property
    def object_bytes(self) -> int: ...

    @property
    def transfer_seconds(self) -> float:
        """Spent inside the store."""

    @property
    def decode_seconds(self) -> float:
        """Spent decoding and restoring."""

    @property
    def seconds(self) -> float:
        """Wall clock; transfer and decoding overlap."""

    @property
    def stopped_by(self) -> kvcodec.errors.KvCodecError | None:
        """
        Why it ended before the last chunk: the exception that a miss (NotFound) or a fault would be.
        """

class StopSource:
    """Cancels the operations it is given to. Thread-safe."""

    def __init__(self) -> None: ...

    def request_stop(self) -> bool:
        """True where nobody had asked before."""

    @property
    def stop_requested(self) -> bool: ...

def publish_prefix(store: Store, namespace: bytes, tokens: numpy.typing.ArrayLike, source: KvCache, *, tier: Tier = Tier.EXACT, rope: Rope = ..., profile: Profile | None = None, chunk_tokens: int = 256, sink_tokens: int = 4, replace: bool = False, threads: int = 0, verify: bool = True, noise_factor: float = 1.5, progress: object | None = None) -> PublishReport:
    """
    Stores every whole chunk of `tokens`, under rendition_name(tier, profile); token i of the sequence is
    token i of `source`. Chunks that are present and whole are left alone, unless `replace`.
    progress(done, total) is called after each chunk; what it raises is raised when the publishing has
    ended. The GIL is released. Options are those of encode_chunk.
    """

def match_prefix(store: Store, namespace: bytes, tokens: numpy.typing.ArrayLike, rendition: str = 'exact', chunk_tokens: int = 256) -> int:
    """
    How many leading tokens are present as whole chunks of a rendition. The GIL is released.
    """

def fetch_prefix(store: Store, namespace: bytes, tokens: numpy.typing.ArrayLike, target: KvCache, *, rendition: str = 'exact', profile: Profile | None = None, lowest_tier: Tier = Tier.SMALL, chunk_tokens: int = 256, max_tokens: int | None = None, max_chunks_in_flight: int = 4, threads: int = 0, progress: object | None = None, stop: StopSource | None = None) -> FetchReport:
    """
    Restores the longest chain of leading chunks present, transfer and decoding overlapped. A missing or
    faulty chunk ends it and is reported (FetchReport.stopped_by), never restored; only a wrong call
    raises. profile: that of a calibrated rendition. lowest_tier: fidelity floor. max_chunks_in_flight
    bounds memory. progress(done, total) is called after each chunk; what it raises ends the fetch and is
    raised. The GIL is released; submit_fetch does not wait.
    """

class DeviceRestorer:
    """
    Restores chunks into the memory of an NVIDIA GPU: NVDEC decodes, kernels write them in place.
    Thread-safe; concurrent calls share the decoders.
    """

    def __init__(self, device: int = 0, *, sessions: int = 0, max_device_bytes: int = 419430400) -> None:
        """
        device: CUDA ordinal. Raises Unsupported where the build or the machine lacks something.
        """

    @property
    def gpu(self) -> str:
        """Its name."""

    def restore(self, object: Buffer, target: KvCache, first_token: int = 0, options: DecodeOptions = ...) -> None:
        """
        As decode_chunk, into a KvCache in this GPU's memory; returns when the GPU has ended its work. The
        tokens of a chunk that failed may have been written to. Work that other streams have queued on them
        must be done before. The GIL is released.
        """
