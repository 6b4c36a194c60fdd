# SPDX-License-Identifier: Apache-2.0
"""The methods of bench/fidelity: round trips, sizes against real coders, bad shapes."""

import json
import pathlib
import sys
import tempfile
import unittest
import zlib

sys.path.insert(0, sys.argv.pop(1))

import numpy as np  # noqa: E402

import cachegen  # noqa: E402
import curve  # noqa: E402
import entropy  # noqa: E402
import kivi  # noqa: E402
import kv_file  # noqa: E402
import kvtc  # noqa: E402
import plot  # noqa: E402

LAYERS, TOKENS, HEADS, DIM = 3, 300, 2, 32


def rope_text(style, dims=DIM):
    steps = [int(10000.0 ** (-2 * i / dims) / (2 * np.pi) * 2**64) for i in range(dims // 2)]
    steps = [] if style == "none" else [f"{s:016x}" for s in steps]
    return json.dumps({"style": style, "rotary_dims": 2 * len(steps), "phase_steps": steps})


def make_cache(seed=1, style="neox", tokens=TOKENS):
    """Channels that differ in mean and scale and share a few directions, as real ones do."""
    random = np.random.default_rng(seed)
    mixing = np.random.default_rng(99).normal(size=(2, 8, LAYERS * HEADS * DIM))

    def kind(which):
        hidden = random.normal(size=(tokens, 8)) * np.array([8, 4, 2, 1, 1, 0.5, 0.5, 0.2])
        x = hidden @ mixing[which] * 0.2 + 0.1 * random.normal(size=(tokens, LAYERS * HEADS * DIM))
        return x.reshape(tokens, LAYERS, HEADS, DIM).transpose(1, 0, 2, 3)

    rope = kv_file.Rope.parse(rope_text(style))
    key = rope.turn(kind(0), 1).astype(np.float16)
    return kv_file.Cache(key, kind(1).astype(np.float16), np.arange(tokens, dtype=np.int32), {"rope": rope_text(style)})


def error(a, b):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(np.sqrt(((a - b) ** 2).sum() / (b**2).sum()))


class Coder:
    """A static arithmetic coder (Witten, Neal and Cleary, 1987), to count real bits with."""

    TOP, HALF, QUARTER = 1 << 32, 1 << 31, 1 << 30

    def __init__(self, counts):
        self.edges = np.concatenate([[0], np.cumsum(counts)]).astype(object)

    def bits(self, symbols):
        low, high, waiting, out = 0, self.TOP - 1, 0, 0
        total = int(self.edges[-1])
        for s in symbols:
            span = high - low + 1
            high = low + span * int(self.edges[s + 1]) // total - 1
            low = low + span * int(self.edges[s]) // total
            while True:
                if high < self.HALF or low >= self.HALF:
                    out += 1 + waiting
                    waiting = 0
                    offset = 0 if high < self.HALF else self.HALF
                elif low >= self.QUARTER and high < 3 * self.QUARTER:
                    waiting += 1
                    offset = self.QUARTER
                else:
                    break
                low, high = 2 * (low - offset), 2 * (high - offset) + 1
        return out + waiting + 2


class Sizes(unittest.TestCase):
    def test_static_bits_are_those_of_a_coder_and_its_tables(self):
        random = np.random.default_rng(5)
        codes = np.rint(random.normal(size=(4, 5000)) * np.array([[0.2], [1], [3], [9]])).astype(int)
        counts, low = entropy.histograms(codes)
        coded = sum(Coder(c).bits(row - low) for c, row in zip(counts, codes))
        tables = 0.5 * np.log2(5000) * ((counts > 0).sum(1) - 1).sum()
        self.assertAlmostEqual(entropy.static_bits(codes) / (coded + tables), 1, delta=0.001)

    def test_profiled_bits_are_those_of_a_coder(self):
        random = np.random.default_rng(6)
        seen, new = (np.rint(random.normal(size=(3, n)) * 2).astype(int) for n in (20000, 4000))
        known = entropy.Profile(3, int(seen.min()), int(seen.max()))
        known.add(seen)
        new = np.clip(new, known.low, known.high)
        coded = sum(Coder(np.rint(10 * c)).bits(row - known.low) for c, row in zip(known.counts, new))
        self.assertAlmostEqual(known.bits(new) / coded, 1, delta=0.001)
        # Distributions of other data cost more than one's own, before tables.
        counts, _ = entropy.histograms(new)
        own = -(counts * np.log2(np.maximum(counts, 1) / 4000)).sum()
        self.assertGreater(known.bits(new), own)

    def test_codes_outside_a_profile_cost(self):
        known = entropy.Profile(1, -1, 1)
        known.add(np.zeros((1, 1000), int))
        self.assertGreater(known.bits(np.array([[0, 0, 7]])), known.bits(np.array([[0, 0, 0]])) + 16)

    def test_shapes(self):
        with self.assertRaisesRegex(ValueError, "contexts"):
            entropy.static_bits(np.zeros(5, int))
        with self.assertRaisesRegex(ValueError, "expected 2 contexts"):
            entropy.Profile(2, 0, 1).bits(np.zeros((3, 4), int))


class Files(unittest.TestCase):
    def test_round_trip(self):
        cache = make_cache()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.safetensors"
            kv_file.write(path, cache, cache.key, cache.value, 12.2)
            back = kv_file.read(path)
            self.assertTrue(np.array_equal(back.key, cache.key) and np.array_equal(back.value, cache.value))
            self.assertTrue(np.array_equal(back.tokens, cache.tokens))
            self.assertEqual(back.metadata["bits"], "13")
            with self.assertRaisesRegex(ValueError, "expected"):
                kv_file.write(path, cache, cache.key[:, :-1], cache.value, 1)

    def test_turning_back(self):
        for style in ("none", "neox", "interleaved"):
            cache = make_cache(style=style)
            there = cache.rope.turn(cache.rope.turn(cache.key, -1), 1)
            self.assertLess(np.abs(there - cache.key.astype(np.float32)).max(), 1e-4, style)
        moved = make_cache(style="neox").rope.turn(cache.key, 1)
        self.assertTrue(np.array_equal(moved[:, 0], cache.key[:, 0].astype(np.float32)))
        self.assertFalse(np.allclose(moved[:, 1], cache.key[:, 1].astype(np.float32)))
        with self.assertRaisesRegex(ValueError, "rope"):
            kv_file.Rope.parse('{"style": "neox", "rotary_dims": 4, "phase_steps": ["1"]}')


class Methods(unittest.TestCase):
    def test_cachegen_in_lmcache(self):
        cache = make_cache()
        sizes, errors = [], []
        for scale in (2, 1, 0.5):
            key, value, bits, _ = cachegen.encode(cachegen.LMCache(scale), cache)
            sizes.append(bits)
            errors.append(error(value, cache.value))
        self.assertEqual(sizes, sorted(sizes, reverse=True))
        self.assertEqual(errors, sorted(errors))
        # Rounding: within half a step of the token's largest magnitude, 15 steps to a side.
        key, value, bits, _ = cachegen.encode(cachegen.LMCache(1), cache)
        largest = np.abs(cache.key.astype(np.float32)).max((2, 3), keepdims=True)
        self.assertLessEqual(np.abs(key - cache.key).max(), (0.501 * largest / 15).max())

    def test_cachegen_of_the_paper(self):
        cache = make_cache()
        method = cachegen.Paper(1)
        key, value, bits, _ = cachegen.encode(method, cache)
        x = cachegen.channels(cache.value)
        anchors = cachegen.channels(value)[:, :: cachegen.GROUP]
        self.assertLess(error(anchors, x[:, :: cachegen.GROUP]), 0.01)  # 8 bits
        early, late = (error(value[layer], cache.value[layer]) for layer in (0, 2))
        self.assertLess(early, late)  # bins grow with depth
        # A cache in which nothing changes has no differences: only the anchors cost.
        still = kv_file.Cache(np.repeat(cache.key[:, :1], TOKENS, 1), np.repeat(cache.value[:, :1], TOKENS, 1),
                              cache.tokens, cache.metadata)
        key, value, small, _ = cachegen.encode(method, still)
        self.assertLess(small, 0.05 * bits)
        self.assertLess(error(key, still.key), 0.01)

    def test_cachegen_takes_the_smaller_size(self):
        cache, method = make_cache(), cachegen.LMCache(1)
        _, _, before, details = cachegen.encode(method, cache)
        self.assertIsNone(details["profiled_bits"])
        cachegen.profile(method, [make_cache(seed) for seed in (2, 3, 4)])
        _, _, after, details = cachegen.encode(method, cache)
        self.assertEqual(after, min(details["static_bits"], details["profiled_bits"]))
        self.assertLess(details["profiled_bits"], before)  # 300 tokens are few for tables of their own

    def test_kivi(self):
        cache = make_cache()
        kept = TOKENS // kivi.RESIDUAL * kivi.RESIDUAL
        for bits, limit in ((4, 0.1), (2, 0.4)):
            key, value, size = kivi.encode(bits, cache)
            self.assertLess(error(key, cache.key), limit)
            self.assertTrue(np.array_equal(key[:, kept:], cache.key[:, kept:].astype(np.float32)))
            recent = cache.value[:, -kivi.RESIDUAL :].astype(np.float32)
            self.assertTrue(np.array_equal(value[:, -kivi.RESIDUAL :], recent))
            channels = LAYERS * HEADS * DIM
            old = TOKENS - kivi.RESIDUAL
            # Codes, and two 16-bit numbers for every 32 of them.
            expected = channels * (kept + old) * (bits + 1) + 16 * channels * (2 * TOKENS - kept - old)
            self.assertEqual(size, expected)
            group = key[0, :32, 0, 0]
            self.assertLessEqual(len(np.unique(group)), 2**bits)
        with self.assertRaisesRegex(ValueError, "whole groups"):
            kivi.encode(2, kv_file.Cache(cache.key[..., :30], cache.value[..., :30], cache.tokens, cache.metadata))

    def test_kivi_keeps_a_short_cache(self):
        cache = make_cache(tokens=100)
        key, value, size = kivi.encode(2, cache)
        self.assertTrue(np.array_equal(key, cache.key) and np.array_equal(value, cache.value))
        self.assertEqual(size, 16 * cache.values)

    def test_allocation_is_optimal(self):
        random = np.random.default_rng(3)
        errors = np.sort(random.random((4, 5)), axis=1)[:, ::-1]
        budget = 6
        width = kvtc.allocate(errors, budget)
        self.assertLessEqual(width.sum(), budget)
        best = min(sum(errors[c, w] for c, w in enumerate(choice))
                   for choice in np.ndindex(5, 5, 5, 5) if sum(choice) <= budget)
        self.assertAlmostEqual(errors[np.arange(4), width].sum(), best)

    def test_kvtc(self):
        cache = make_cache(1, "interleaved")
        coder = kvtc.Kvtc([make_cache(seed, "interleaved") for seed in (2, 3, 4, 5)])
        sizes, errors = [], []
        for budget in (0.1, 0.3):
            key, value, bits = coder.encode(cache, budget, 0)
            sizes.append(bits)
            errors.append(error(key, cache.key) + error(value, cache.value))
            head = np.abs(key[:, : kvtc.SINKS] - cache.key[:, : kvtc.SINKS].astype(np.float32)).max()
            self.assertLess(head, 1e-3)
        self.assertLess(sizes[0], sizes[1])
        self.assertLess(errors[1], errors[0])
        self.assertLess(errors[0], 1)
        key, value, bits = coder.encode(cache, 0.3, kvtc.WINDOW)
        self.assertTrue(np.array_equal(value[:, -kvtc.WINDOW :], cache.value[:, -kvtc.WINDOW :].astype(np.float32)))
        self.assertGreater(bits, 16 * LAYERS * HEADS * DIM * 2 * (kvtc.WINDOW + kvtc.SINKS))

    def test_deflate_is_that_of_zlib(self):
        codes = np.random.default_rng(1).integers(0, 4, (50, 3)).astype(np.uint8)
        size = kvtc.deflate_bits(codes, np.array([2, 2, 2]))
        self.assertLessEqual(size, 8 * len(zlib.compress(codes.T.tobytes(), 9)))
        self.assertGreater(size, 50 * 3 * 2 * 0.9)  # random: nothing to gain beyond packing


class Curves(unittest.TestCase):
    ROWS = [{"method": m, "bits": b, "values": 1, "kl": k, "kind": "code"} for m, b, k in
            (("a", 4, 0.01), ("b", 1, 0.16), ("x", 8, 0.04))]

    def test_interpolation(self):
        self.assertAlmostEqual(curve.bits_at([(4, 0.01), (1, 0.16)], 0.04), 2)
        self.assertIsNone(curve.bits_at([(4, 0.01), (1, 0.16)], 0.2))
        (compared,) = curve.compare(self.ROWS, ["a", "b"], ["x"])
        self.assertAlmostEqual(compared["times_smaller"], 4)
        self.assertEqual(curve.mean_points(self.ROWS, ["a"], {"prose"}), {})

    def test_plot(self):
        text = plot.draw([("a & b", [(1, 0.1, ""), (2, 0.01, "x")]), ("exact", [(16, 0, "")])], "t")
        self.assertIn("a &amp; b", text)
        self.assertNotIn("exact", text)
        self.assertEqual(text.count("<circle"), 2)
        with self.assertRaisesRegex(ValueError, "no point"):
            plot.draw([("exact", [(16, 0, "")])], "t")


if __name__ == "__main__":
    unittest.main()
