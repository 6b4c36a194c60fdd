# SPDX-License-Identifier: Apache-2.0
import kvcodec
import pytest
from kvcodec import _native, errors


def test_every_code_of_the_library_has_a_class():
    assert list(errors.BY_CODE) == _native.error_codes()
    for code, cls in errors.BY_CODE.items():
        assert cls.code == code and issubclass(cls, errors.KvCodecError)
        error = errors.from_code(code, "what")
        assert type(error) is cls and str(error) == "what"
        assert getattr(kvcodec, cls.__name__) is cls


def test_a_code_from_the_future_is_an_internal_error_that_names_it():
    error = errors.from_code("melted", "what")
    assert type(error) is errors.InternalError and "melted" in str(error)


@pytest.mark.parametrize(
    "kind, call",
    [
        (errors.InvalidArgument, lambda: kvcodec.tier_from_name("tiny")),
        (errors.InvalidArgument, lambda: kvcodec.chunk_keys(bytes(32), [1], 0)),
        (errors.InvalidArgument, lambda: kvcodec.rendition_name(kvcodec.Tier.HIGH)),
        (errors.NotFound, lambda: kvcodec.open_store("mem:").get("nothing")),
        (errors.NotFound, lambda: kvcodec.sha256_file("/nothing/here")),
        (errors.Corrupt, lambda: kvcodec.chunk_info(b"not a chunk" * 100)),
        (errors.Unsupported, lambda: kvcodec.open_store("carrier-pigeon://coop")),
        (ValueError, lambda: kvcodec.open_store("mem:").put("UPPER", b"")),
        (LookupError, lambda: kvcodec.open_store("mem:").stat("nothing")),
        (OSError, lambda: kvcodec.open_store("file:///proc/nothing/here")),
        (TypeError, lambda: kvcodec.chunk_keys(b"short", [1, 2])),
        (TypeError, lambda: kvcodec.chunk_keys(bytes(32), [2**31])),
        (TypeError, lambda: kvcodec.chunk_keys(bytes(32), "text")),
        (TypeError, lambda: kvcodec.chunk_keys(bytes(32), [1.5])),
    ],
)
def test_what_calls_raise(kind, call):
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value)


def test_a_restorer_without_a_gpu_says_what_is_missing():
    try:
        restorer = kvcodec.DeviceRestorer()
    except kvcodec.Unsupported as error:
        assert len(str(error)) > 10
    else:
        assert restorer.gpu
