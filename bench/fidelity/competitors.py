# SPDX-License-Identifier: Apache-2.0
"""The methods that `kvcodec eval` is given from outside, and where their calibration is kept."""

import hashlib
import pathlib
import pickle

import numpy as np

import cachegen
import entropy
import kivi
import kv_file
import kvtc

# Scales of CacheGen's published levels (1: the default), widths of KIVI, bits a value of KVTC
# before DEFLATE. Together each method's curve.
LMCACHE_SCALES = (2.0, 1.5, 1.0, 0.75, 0.5)
PAPER_SCALES = (0.5, 0.75, 1.0, 1.5, 2.0)
KIVI_BITS = (4, 2)
KVTC_BUDGETS = (2.0, 1.5, 1.0, 0.75, 0.5)
KVTC_DEFAULT = 1.0  # 16 times smaller than 16 bits before DEFLATE, the paper's headline setting

FAMILIES = {"cachegen": "CacheGen, as in LMCache", "cachegen-paper": "CacheGen, as in the paper",
            "kivi": "KIVI", "kvtc": "KVTC", "kvtc-window": "KVTC, recent 128 tokens raw"}


class Competitors:
    """encode() by name; what needs calibration is gathered once and kept in `folder`."""

    def __init__(self, calibration, folder):
        """calibration: files of caches, none of them judged."""
        self.methods = {}
        for scale in LMCACHE_SCALES:
            self.methods[f"cachegen-{scale:g}"] = cachegen.LMCache(scale)
        for scale in PAPER_SCALES:
            self.methods[f"cachegen-paper-{scale:g}"] = cachegen.Paper(scale)
        self.kvtc = None
        self.key = ""  # changes with the calibration
        if calibration:
            self._calibrate([pathlib.Path(p) for p in calibration], pathlib.Path(folder))

    def _calibrate(self, paths, folder):
        sources = b"".join(pathlib.Path(m.__file__).read_bytes() for m in (cachegen, entropy, kvtc))
        names = "".join(f"{p.name} {p.stat().st_size}\n" for p in sorted(paths))
        key = hashlib.sha256(sources + names.encode()).hexdigest()[:16]
        self.key = key
        kept = folder / f"competitors-{key}.pickle"
        if kept.exists():
            profiles, self.kvtc = pickle.loads(kept.read_bytes())
            for name, method in self.methods.items():
                method.profiles = profiles[name]
            return
        caches = [kv_file.read(p) for p in sorted(paths)]
        for method in self.methods.values():
            cachegen.profile(method, caches)
        self.kvtc = kvtc.Kvtc(caches)
        folder.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(pickle.dumps(({n: m.profiles for n, m in self.methods.items()}, self.kvtc)))

    def names(self, headline=False):
        """headline: one setting a family, the published default."""
        kvtcs = [] if self.kvtc is None else [KVTC_DEFAULT] if headline else KVTC_BUDGETS
        coders = ["cachegen-1", "cachegen-paper-1"] if headline else list(self.methods)
        return (coders + [f"kivi-{bits}" for bits in KIVI_BITS] + [f"kvtc-{b:g}" for b in kvtcs]
                + [f"kvtc-window-{b:g}" for b in kvtcs[: 3]])

    def encode(self, name, cache):
        """Returns (key, value, bits), arrays as in kv_file.Cache."""
        family, setting = name.rsplit("-", 1)
        if name in self.methods:
            return cachegen.encode(self.methods[name], cache)[:3]
        if family == "kivi":
            return kivi.encode(int(setting), cache)
        if self.kvtc is None or family not in ("kvtc", "kvtc-window"):
            raise ValueError(f"no method {name}")
        window = kvtc.WINDOW if family == "kvtc-window" else 0
        return self.kvtc.encode(cache, float(setting), window)


def finite(array):
    """Restored values as float16 holds them; a method must not blow up."""
    if not np.isfinite(array.astype(np.float16)).all():
        raise ValueError("a restored value is beyond float16")
    return array
