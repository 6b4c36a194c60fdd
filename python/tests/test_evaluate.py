# SPDX-License-Identifier: Apache-2.0
import kvcodec
import numpy as np
import pytest
from kvcodec import arrays, evaluate


def test_distortion(kv):
    cache, off = arrays.from_array(kv), arrays.from_array(kv.copy())
    assert all(d.equal and d.relative_error == 0 for d in evaluate.distortion(cache, off))
    off.memory.view(np.float16).reshape(kv.shape)[1, 1, 5, 0, 3] += 2
    keys, values = evaluate.distortion(cache, off)
    assert keys.equal and not values.equal and values.largest_error == pytest.approx(2, abs=0.01)
    assert values.relative_error == pytest.approx(2 / np.linalg.norm(kv[:, 1].astype(float)), rel=0.01)
    with pytest.raises(kvcodec.InvalidArgument):
        evaluate.distortion(cache, arrays.from_array(kv[:, :, :50]))


def test_bfloat16_bits_are_values():
    ones, twos = (arrays.from_array(np.full((1, 2, 4, 1, 4), bits, np.uint16), dtype=kvcodec.DType.BF16)
                  for bits in (0x3F80, 0x4000))  # fmt: skip
    assert evaluate.distortion(ones, twos)[0] == evaluate.Distortion(1.0, 1.0, False)


def test_divergence_of_predictions():
    p = np.log([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]])
    q = np.log([[0.25, 0.5, 0.25], [0.1, 0.8, 0.1]]) + 7  # logits need no scale
    assert evaluate.kl_divergence(p, q) == pytest.approx([0.5 * np.log(2) - 0.25 * np.log(2), 0])
    assert evaluate.top1_agreement(p, q) == 0.5
