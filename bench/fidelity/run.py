#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Size against damage: our tiers and other methods on the same texts, in one run.

    bench/fidelity/run.py --model M.gguf --profile M.profile --texts JUDGED --calibration TEXTS

For every model: weights become f32 (dequantise_gguf says why); `kvcodec eval` computes each judged
text's prefix once and dumps its KV; the methods of competitors.py make their versions of it; eval
scores these and our tiers. Calibration texts serve the methods that need statistics, and are never
judged. Names of texts are NNN-KIND.txt, as scripts/calibration-texts writes them. Everything slow is
kept in --work: a run that was stopped goes on where it was. Writes --out and prints what it says.

--model may be given again, each with its --profile (or --profile none: int8 and the others only).
"""

import argparse
import concurrent.futures
import datetime
import hashlib
import json
import math
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

import competitors
import curve
import kv_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIERS = ("high", "balanced", "small")
# Steps of our curve in terms of the tier small's, beside the three tiers.
STEPS = (1.5, 2.25, 3.4)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", required=True, type=pathlib.Path)
    parser.add_argument("--profile", action="append", default=[])
    parser.add_argument("--texts", required=True, type=pathlib.Path, help="folder of judged texts")
    parser.add_argument("--calibration", type=pathlib.Path, help="folder of texts that are not judged")
    parser.add_argument("--texts-a-kind", type=int, default=2)
    parser.add_argument("--calibration-texts", type=int, default=24)
    parser.add_argument("--lengths", default="512,1024,2048")
    parser.add_argument("--continuation", type=int, default=128)
    parser.add_argument("--needles", default="0.1,0.5,0.9", help="depths, on one text of every kind; '' for none")
    parser.add_argument("--work", type=pathlib.Path, required=True, help="folder for what is kept")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/fidelity.json")
    parser.add_argument("--quick", action="store_true", help="one setting of every method, its default")
    parser.add_argument("--jobs", type=int, default=1, help="texts at work at once; each has its share of the cores")
    args = parser.parse_args()
    if args.profile and len(args.profile) != len(args.model):
        parser.error(f"{len(args.model)} --model and {len(args.profile)} --profile: expected as many")
    args.threads = max(1, (os.cpu_count() or 1) // args.jobs)
    args.profile = [None if p == "none" else pathlib.Path(p) for p in args.profile or ["none"] * len(args.model)]
    return args


def kind_of(text):
    """NNN-KIND -> KIND."""
    return text.rsplit("-", 1)[-1]


def pick_texts(folder, a_kind):
    """The first texts of every kind, kinds taking turns."""
    kinds = {}
    for path in sorted(folder.glob("*.txt")):
        kinds.setdefault(kind_of(path.stem), []).append(path)
    if not kinds:
        sys.exit(f"{folder}: no texts named NNN-KIND.txt; scripts/calibration-texts makes them")
    return [path for kind in sorted(kinds) for path in kinds[kind][:a_kind]]


def long_lines(text):
    return {line.strip() for line in text.splitlines() if len(line.strip()) >= 60}


def check_disjoint(args):
    """Judged texts are none that a profile was made with, and share no long line with calibration
    texts. Ends the program otherwise; returns what was compared."""
    judged = pick_texts(args.texts, args.texts_a_kind)
    digests = {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in judged}
    profiled = 0
    for profile in filter(None, args.profile):
        with open(profile, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        known = json.loads(header["__metadata__"]["calibration"])
        texts = known.get("texts", []) + known.get("validation", [])
        if not texts:
            sys.exit(f"{profile}: does not say what it was calibrated on")
        profiled += len(texts)
        for text in texts:
            if text["sha256"] in digests:
                sys.exit(f"{digests[text['sha256']]} is judged, and {profile} was made with it")
    others = sorted(args.calibration.glob("*.txt")) if args.calibration else []
    lines = {line: path for path in others for line in long_lines(path.read_text(encoding="utf-8"))}
    for path in judged:
        for line in long_lines(path.read_text(encoding="utf-8")):
            if line in lines:
                sys.exit(f"{path} is judged, and shares with {lines[line]}: {line}")
    return {"judged": len(judged), "of_profiles": profiled, "of_calibration": len(others), "shared_lines": 0}


class Model:
    """One model at work: its f32 weights, its profile variants, its folder."""

    def __init__(self, args, gguf, profile):
        self.args, self.gguf, self.profile = args, gguf, profile
        self.work = args.work / gguf.stem
        self.work.mkdir(parents=True, exist_ok=True)
        self.weights = self.work / "f32.gguf"
        if not self.weights.exists():
            partial = self.weights.with_suffix(".partial")
            with open(self.work / "dequantise.log", "w") as log:
                subprocess.run([args.build / "bench/dequantise_gguf", gguf, partial], check=True, stdout=log,
                               stderr=log)
            partial.rename(self.weights)
        self.ours = ["exact", "int8"]
        self.curve = []
        if profile:
            self.ours += list(TIERS)
            self.curve = [f"small={p}" for p in self.coarser_profiles()]

    def coarser_profiles(self):
        """The profile with larger steps for its tier small, so that the curve goes on."""
        data = self.profile.read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        tiers = json.loads(header["__metadata__"]["tiers"])
        for factor in STEPS:
            changed = {**tiers, "small": {**tiers["small"], "step": tiers["small"]["step"] * factor}}
            header["__metadata__"]["tiers"] = json.dumps(changed)
            text = json.dumps(header).encode()
            text += b" " * (-len(text) % 8)
            path = self.work / f"step{factor:g}.safetensors"
            path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
            yield path

    def eval(self, texts, *words):
        command = [self.args.build / "tools/kvcodec", "eval", "--model", self.weights, "--text", *texts,
                   "--lengths", self.args.lengths, "--continuation", self.args.continuation,
                   "--cache", self.work / "cache", "--threads", self.args.threads, "--json", *words]
        done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"exit code {done.returncode} of {shlex.join(map(str, command))}")
        return json.loads(done.stdout)

    def calibration(self):
        """Caches of texts that are not judged, for the methods that need statistics."""
        folder = self.work / "calibration"
        if self.args.calibration is None:
            return []
        a_kind = -(-self.args.calibration_texts // 4)
        texts = pick_texts(self.args.calibration, a_kind)
        longest = max(int(n) for n in self.args.lengths.split(","))
        missing = [t for t in texts if not (folder / f"{t.stem}-{longest}.safetensors").exists()]

        def dump(text):
            print(f"calibration: {text.name}", flush=True)
            command = [self.args.build / "tools/kvcodec", "eval", "--model", self.weights, "--text", text,
                       "--lengths", longest, "--continuation", 1, "--threads", self.args.threads, "--dump", folder]
            subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)

        with concurrent.futures.ThreadPoolExecutor(self.args.jobs) as pool:
            list(pool.map(dump, missing))
        return [folder / f"{t.stem}-{longest}.safetensors" for t in texts]


class ExternalRows:
    """Rows of competitors, kept by what they depend on."""

    def __init__(self, model, methods):
        self.model, self.methods = model, methods
        self.folder = model.work / "rows"
        self.folder.mkdir(exist_ok=True)
        sources = b"".join((pathlib.Path(__file__).parent / name).read_bytes() for name in
                           ("cachegen.py", "entropy.py", "kivi.py", "kvtc.py"))
        self.base = hashlib.sha256(sources + methods.key.encode()).hexdigest()

    def path(self, case, digest, name):
        key = hashlib.sha256(f"{self.base} {digest} {case} {name} {self.model.args.continuation}".encode())
        return self.folder / f"{key.hexdigest()[:32]}.json"

    def run(self, text, names, words):
        """Rows of `names` for the cases that `words` ask eval for."""
        exact, out = (self.model.work / folder / text.stem for folder in ("exact", "external"))
        shutil.rmtree(exact, ignore_errors=True)
        shutil.rmtree(out, ignore_errors=True)
        self.model.eval([text], "--dump", exact, *words)
        cases = sorted(exact.glob("*.safetensors"))
        kept = {}
        for case in cases:
            digest = hashlib.sha256(case.read_bytes()).hexdigest()
            for name in names:
                kept[case.stem, name] = self.path(case.stem, digest, name)
        todo = [name for name in names if not all(kept[c.stem, name].exists() for c in cases)]
        jobs = [(name, case) for name in todo for case in cases]
        if jobs:
            for job in jobs:
                self.encode(*job, out)
            words = [*words, *(word for name in todo for word in ("--methods", f"external:{name}={out / name}"))]
            for row in self.model.eval([text], *words)["rows"]:
                kept[row["case"], row["method"]].write_text(json.dumps(row))
        shutil.rmtree(out, ignore_errors=True)
        shutil.rmtree(exact, ignore_errors=True)
        return [json.loads(path.read_text()) for path in kept.values()]

    def encode(self, name, case, out):
        cache = kv_file.read(case)
        key, value, bits = self.methods.encode(name, cache)
        (out / name).mkdir(parents=True, exist_ok=True)
        kv_file.write(out / name / case.name, cache, competitors.finite(key), competitors.finite(value), bits)


def run_model(args, gguf, profile):
    model = Model(args, gguf, profile)
    methods = competitors.Competitors(model.calibration(), model.work)
    external = ExternalRows(model, methods)
    texts = pick_texts(args.texts, args.texts_a_kind)
    first = {kind_of(text.stem): text for text in reversed(texts)}
    planted = ["--needles", args.needles] if args.needles else []

    def judge(text):
        print(f"{gguf.stem}: {text.stem}", flush=True)
        ours = ["--methods", ",".join(["raw", *model.ours])] + (["--profile", profile] if profile else [])
        report = model.eval([text], *ours)
        found = report["rows"]
        if model.curve:
            # Coarser steps are noisier than the profile expects, by intent: no finer tier for them.
            found += model.eval([text], "--methods", ",".join(model.curve), "--noise-factor", "0")["rows"]
        found += external.run(text, methods.names(headline=args.quick), [])
        if planted and first[kind_of(text.stem)] == text:
            both = model.eval([text], *ours, *planted)["rows"]
            both += external.run(text, methods.names(headline=True), planted)
            found += [row for row in both if "depth" in row]
        for row in found:
            row["kind"] = kind_of(row["text"])
        return report["model"], found

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        done = list(pool.map(judge, texts))
    return summarise(model, methods, done[0][0], [row for _, found in done for row in found], texts)


def summarise(model, methods, name, rows, texts):
    kinds = sorted({r["kind"] for r in rows})
    lengths = sorted({r["tokens"] for r in rows if "depth" not in r})
    curve_names = [f"small:{pathlib.Path(c.split('=')[1]).stem}" for c in model.curve]
    ours = [t for t in model.ours if t in TIERS] + curve_names
    points = curve.mean_points(rows, list(dict.fromkeys(r["method"] for r in rows)))
    families = []
    own = [("int8", "int8")] + [(t, t) for t in model.ours if t in TIERS] + [(c, "") for c in curve_names]
    families.append({"name": "kvcodec", "label": "KVCodec", "points": family_points(points, own)})
    for family, label in competitors.FAMILIES.items():
        members = [n for n in methods.names() if n.rsplit("-", 1)[0] == family]
        notes = [(n, "default" if n in methods.names(headline=True) and family != "kivi" else "") for n in members]
        families.append({"name": family, "label": label, "points": family_points(points, notes)})
    defaults = ["cachegen-1", "cachegen-paper-1"]
    baselines = defaults + [n for n in methods.names() if n in points and n not in defaults]
    return {
        "model": name,
        "file": model.gguf.name,
        "texts": len(texts),
        "text_names": [t.stem for t in texts],
        "lengths": model.args.lengths,
        "continuation": model.args.continuation,
        "methods": method_table(rows),
        "families": families,
        "comparison": curve.compare(rows, ours, baselines),
        "comparison_by_kind": {k: curve.compare(rows, ours, defaults, {k}) for k in kinds},
        "by_length": {n: method_table([r for r in rows if r["tokens"] == n]) for n in lengths},
        "by_kind": {k: method_table([r for r in rows if r["kind"] == k]) for k in kinds},
        "rows": rows,
    }


def family_points(points, names):
    return [{"method": n, "bits_per_value": points[n][0], "kl": points[n][1], "note": note}
            for n, note in names if n in points]


def method_table(rows):
    out = []
    for method in dict.fromkeys(r["method"] for r in rows):
        plain = [r for r in rows if r["method"] == method and "depth" not in r]
        planted = [r for r in rows if r["method"] == method and "depth" in r]
        if not plain:
            continue
        scored = sum(r["scored"] for r in plain)
        kl = [r["kl"] for r in plain]
        mean = sum(kl) / len(kl)
        spread = math.sqrt(sum((k - mean) ** 2 for k in kl) / (len(kl) - 1) / len(kl)) if len(kl) > 1 else 0.0
        change = sum(r["exact_log_prob"] - r["log_prob"] for r in plain) / scored
        out.append({
            "method": method,
            "bits_per_value": sum(r["bits"] for r in plain) / sum(r["values"] for r in plain),
            "kl": mean,
            "kl_error": spread,
            "top1": sum(r["top1"] * r["scored"] for r in plain) / scored,
            "perplexity_change": math.exp(change) - 1,
            "finer": sum(r["finer"] for r in plain),
            "objects": sum(r["objects"] for r in plain),
            "needles": len(planted),
            "found": sum(r["found"] for r in planted),
            "exact_found": sum(r["exact_found"] for r in planted),
        })
    return out


def command_of(args):
    """The command with the names of files, not where they are on this machine."""
    words = ["bench/fidelity/run.py"]
    for model, profile in zip(args.model, args.profile):
        words += ["--model", model.name, "--profile", profile.name if profile else "none"]
    words += ["--texts", args.texts.name, "--calibration", args.calibration.name if args.calibration else "none",
              "--calibration-texts", args.calibration_texts, "--texts-a-kind", args.texts_a_kind,
              "--lengths", args.lengths, "--continuation", args.continuation, "--needles", args.needles]
    return shlex.join(map(str, words + (["--quick"] if args.quick else [])))


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(": ", 1)[1]
    return "unknown"


def print_summary(run):
    print(f"\n{run['model']}: {run['texts']} texts")
    for m in run["methods"]:
        print(f"{m['method']:22} {m['bits_per_value']:7.3f} bit  KL {m['kl']:.5f} +- {m['kl_error']:.5f}  "
              f"top-1 {m['top1']:.4f}  perplexity {100 * m['perplexity_change']:+.2f} %  "
              f"needles {m['found']}/{m['exact_found']} of {m['needles']}")
    for c in run["comparison"]:
        if c["times_smaller"]:
            print(f"at the KL of {c['method']} ({c['kl']:.4f}, {c['bits_per_value']:.3f} bit): "
                  f"ours {c['ours_at_that_kl']:.3f} bit, {c['times_smaller']:.2f} times smaller")
    for length, methods in run["by_length"].items():
        print(f"  prefix {length}: " + ", ".join(f"{m['method']} {m['bits_per_value']:.3f} at {m['kl']:.5f}"
                                                 for m in methods))
    for kind, compared in run["comparison_by_kind"].items():
        print(f"  {kind}: " + ", ".join(f"{c['method']} {c['times_smaller']:.2f}x" if c["times_smaller"] else
                                        f"{c['method']}: not crossed" for c in compared))


def main():
    args = arguments()
    os.environ.setdefault("OMP_NUM_THREADS", str(args.threads))
    disjoint = check_disjoint(args)
    runs = [run_model(args, m, p) for m, p in zip(args.model, args.profile)]
    result = {
        "name": "fidelity",
        "date": datetime.date.today().isoformat(),
        "command": command_of(args),
        "hardware": {"processor": processor(), "cores": os.cpu_count()},
        "disjoint": disjoint,
        "models": runs,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    rows = [run.pop("rows") for run in runs]
    text = json.dumps(result, indent=1)
    # Rows are many: one a line.
    lines = ",\n".join("[" + ",\n".join(json.dumps(r) for r in own) + "]" for own in rows)
    args.out.write_text(text[:-2] + ',\n "rows": [' + lines + "]\n}\n")
    for run in runs:
        print_summary(run)
    print(f"{args.out} written; then bench/fidelity/plot.py and scripts/update_docs.py")
    return 0


if __name__ == "__main__":
    sys.exit(main())
