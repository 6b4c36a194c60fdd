# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the library, one for each of its error codes.

Every one is a KvCodecError, and the built-in exception it is a kind of where there is one, so that
`except MemoryError` and `except OSError` do what they should. The message names the object, the
offset or field, what was expected and what was found.
"""


class KvCodecError(Exception):
    """Base of all. `code` is the stable lower-case name of the error code."""

    code = ""


class InvalidArgument(KvCodecError, ValueError):
    """The caller asked for something that makes no sense."""

    code = "invalid_argument"


class NotFound(KvCodecError, LookupError):
    """A cache miss; never a fault."""

    code = "not_found"


class Corrupt(KvCodecError):
    """Bytes are not what they should be; nothing of them was restored."""

    code = "corrupt"


class Unsupported(KvCodecError):
    """Valid, but this build, machine or version cannot do it."""

    code = "unsupported"


class Unavailable(KvCodecError, ConnectionError):
    """Transient; a retry may succeed."""

    code = "unavailable"


class IoError(KvCodecError, OSError):
    """The operating system refused."""

    code = "io"


class OutOfMemory(KvCodecError, MemoryError):
    """No memory for what was asked."""

    code = "out_of_memory"


class DeviceError(KvCodecError):
    """GPU or driver."""

    code = "device"


class InternalError(KvCodecError):
    """A fault of the library itself: please report it."""

    code = "internal"


class Cancelled(KvCodecError):
    """The caller asked to stop."""

    code = "cancelled"


# The one place where codes become classes; the native module raises through from_code().
BY_CODE: dict[str, type[KvCodecError]] = {
    cls.code: cls
    for cls in (InvalidArgument, NotFound, Corrupt, Unsupported, Unavailable, IoError, OutOfMemory,
                DeviceError, InternalError, Cancelled)
}  # fmt: skip


def from_code(code: str, message: str) -> KvCodecError:
    """The exception of an error code; an unknown code is an InternalError that names it."""
    cls = BY_CODE.get(code)
    return cls(message) if cls else InternalError(f"error code {code}: {message}")
