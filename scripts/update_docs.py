#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the result tables of the documents from bench/results/*.json.

A document marks a table's place with `<!-- table: NAME -->` and `<!-- end -->`; NAME is a function
below. Usage: update_docs.py [--check]: with --check, fails where a document is out of date.
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = ["README.md", "docs/benchmarks.md"]


def load(name):
    return json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text())


def table(heading, rows):
    """A Markdown table; columns of numbers are aligned right."""
    numeric = [all(re.match(r"^[-+0-9.]", row[c]) for row in rows) for c in range(len(heading))]
    widths = [max(len(row[c]) for row in [heading, *rows]) for c in range(len(heading))]

    def line(cells):
        return "| " + " | ".join(c.rjust(w) if n else c.ljust(w) for c, w, n in zip(cells, widths, numeric)) + " |"

    rule = "|" + "|".join("-" * (w + 1) + ":" if n else "-" * (w + 2) for w, n in zip(widths, numeric)) + "|"
    return "\n".join([line(heading), rule, *map(line, rows)])


def source(result):
    """One line that says where, when and how."""
    hardware = result["hardware"]
    return f"{hardware['processor']}, {hardware['cores']} cores, {result['date']}: `{result['command']}`"


def demo():
    result = load("demo")
    names = {"prefill": "full prefill", "raw": "raw fetch"}
    rows = []
    for r in result["results"]:
        if r["method"] == "prefill":
            same = "reference"
        elif r["logits_identical"]:
            same = "yes, bit for bit"
        else:
            same = "yes" if r["same_continuation"] else f"{100 * r['agreement']:.0f} %"
        rows.append([
            f"{r['mbps']:g}" if "mbps" in r else "-",
            names.get(r["method"], r["method"]),
            f"{r['bytes'] / 1e6:.1f}" if "bytes" in r else "-",
            f"{r['bits_per_value']:.2f}" if "bits_per_value" in r else "-",
            f"{r['ttft_seconds']:.2f}",
            f"{r['speedup_over_prefill']:.2f}x" if "mbps" in r else "-",
            f"{r['speedup_over_raw']:.2f}x" if "mbps" in r else "-",
            same,
            f"{r['kl']:.5f}" if "kl" in r else "-",
        ])
    heading = ["link Mb/s", "method", "MB", "bits/value", "TTFT s", "vs prefill", "vs raw", "same 32 tokens", "KL"]
    notes = "\n".join(f"- {line}" for line in result["crossovers"])
    return f"{table(heading, rows)}\n\n{notes}\n\n{result['model']}; {source(result)}"


def hevc():
    result = load("hevc")
    shown = ["reference", "bmi2", "avx2", "avx512vbmi"]
    rows = []
    for p in result["planes"]:
        x265 = p["x265_superfast"]
        speeds = p["encode_mb_per_second"]
        one, two = p["threads_mb_per_second"]
        rows.append([
            p["name"].replace("_", " "),
            f"{p['entropy']:.3f}",
            f"{p['bits']:.3f}",
            f"{p['bits'] / p['entropy']:.3f}",
            f"{x265['bits'] / p['entropy']:.3f}" if x265 else "-",
            *(f"{speeds[name]:.1f}" if name in speeds else "-" for name in shown),
            f"{x265['encode_mb_per_second']:.1f}" if x265 else "-",
            f"{max(speeds.values()) / x265['encode_mb_per_second']:.0f}x" if x265 else "-",
            f"{two / one:.2f}x",
        ])
    heading = ["plane", "entropy", "bits", "ratio", "x265 ratio", *shown, "x265", "over x265", "2 threads"]
    counts = []
    for name in shown[1:]:
        for p in result["planes"]:
            if name in p["encode_by_count"] and p["name"] in ("exact_value", "int8_value"):
                speeds = [f"{speed:.0f}" for speed in p["encode_by_count"][name]]
                counts.append([f"{name}, {p['name'].replace('_', ' ')}", *speeds])
    count_heading = ["MB/s, pictures a call", *map(str, result["planes"][0]["counts"])]
    return f"{table(heading, rows)}\n\n{table(count_heading, counts)}\n\n{source(result)}"


def hevc_decode():
    result = load("hevc_decode")
    found = {}
    for r in result["rows"]:
        found.setdefault((r["plane"], r["pictures"]), {})[(r["decoder"], r["threads"])] = r
    lanes = [name for name in ("neon", "sse4", "avx2", "avx512", "avx512vbmi") if any(name == r["decoder"] for r in result["rows"])]
    rows = []
    for (plane, pictures), have in found.items():
        speed = {key: r["mb_per_second"] for key, r in have.items()}
        slow = speed["libavcodec", 1]
        scalar = max(speed.get((name, 1), 0) for name in ("scalar", "bmi2"))
        rows.append([
            plane.replace("_", " "),
            f"{have['library', 1]['bits']:.2f}",
            str(pictures),
            f"{slow:.1f}",
            f"{scalar:.1f}",
            *(f"{speed[name, 1]:.1f}" for name in lanes),
            f"{speed['library', 1] / slow:.1f}x",
            f"{speed['library', 2] / speed['library', 1]:.2f}x",
        ])
    heading = ["plane", "bits", "pictures", "libavcodec", "scalar", *lanes, "library over libavcodec", "2 threads over 1"]
    return f"{table(heading, rows)}\n\nMB/s of samples. {source(result)}"


def codec():
    result = load("codec")
    rows = []
    for r in result["rows"]:
        if r["table"] != "tiers" or "bits_per_value" not in r:
            continue
        rows.append([
            r["row"],
            f"{r['bits_per_value']:.3f}",
            f"{r['key_bits']:.3f}",
            f"{r['value_bits']:.3f}",
            f"{r['relative_error']:.4f}",
            f"{r['encode_mb_s']:.1f}",
            f"{r['decode_mb_s']:.1f}",
        ])
    heading = ["tier", "bits/value", "keys", "values", "relative error", "encode MB/s", "decode MB/s"]
    return f"{table(heading, rows)}\n\nMB/s of uncompressed KV. {source(result)}"


def fidelity():
    parts = []
    result = load("fidelity")
    for run in result["models"]:
        rows = []
        for m in run["methods"]:
            rows.append([
                m["method"],
                f"{m['bits_per_value']:.3f}",
                f"{16 / m['bits_per_value']:.1f}x",
                "0" if m["kl"] == 0 else f"{m['kl']:.5f}",
                f"{m['kl_error']:.5f}",
                f"{m['top1']:.4f}",
                f"{100 * m['perplexity_change']:+.2f} %",
                f"{m['found']} of {m['exact_found']}" if m["needles"] else "-",
            ])
        heading = ["method", "bits/value", "smaller", "KL", "+-", "top-1", "perplexity", "needles"]
        compared = [[
            c["method"],
            f"{c['kl']:.4f}",
            f"{c['bits_per_value']:.3f}",
            f"{c['ours_at_that_kl']:.3f}" if c["ours_at_that_kl"] else "-",
            f"{c['times_smaller']:.2f}x" if c["times_smaller"] else "-",
            *(kind_ratio(run, kind, c["method"]) for kind in sorted(run["comparison_by_kind"])),
        ] for c in run["comparison"]]
        by_length = [[length, m["method"], f"{m['bits_per_value']:.3f}", f"{16 / m['bits_per_value']:.1f}x",
                      f"{m['kl']:.5f}"]
                     for length, methods in run["by_length"].items() for m in methods
                     if m["method"] in ("high", "balanced", "small", "cachegen-1")]
        by_kind = [[kind, m["method"], f"{m['bits_per_value']:.3f}", f"{16 / m['bits_per_value']:.1f}x",
                    f"{m['kl']:.5f}"]
                   for kind, methods in run["by_kind"].items() for m in methods
                   if m["method"] in ("high", "balanced", "small", "kvtc-1", "cachegen-1")]
        narrow = ["method", "bits/value", "smaller", "KL"]
        crossed = ["at the KL of", "KL", "its bits", "our bits", "times smaller", *sorted(run["comparison_by_kind"])]
        name = pathlib.Path(run["file"]).stem
        parts += [f"**{name}**, {run['texts']} texts, prefix {run['lengths']}, continuation "
                  f"{run['continuation']} tokens", table(heading, rows), table(crossed, compared),
                  table(["prefix", *narrow], by_length), table(["kind of text", *narrow], by_kind)]
    return "\n\n".join(parts) + f"\n\n{source(result)}"


def device():
    result = load("device")
    rows = [[
        r["chunk"], f"{r['object_bytes'] / 1e6:.2f}", f"{r['bits_per_value']:.2f}",
        f"{r['kv_gb_per_second']:.2f}", f"{r['tokens_per_second']:.0f}",
        f"{r['nvdec_gb_per_second']:.2f}", f"{100 * r['of_nvdec_alone']:.1f} %", f"{r['first_ms']:.1f}",
    ] for r in result["rows"]]
    heading = ["chunk", "MB", "bits/value", "KV GB/s", "tokens/s", "NVDEC GB/s", "of NVDEC alone", "one chunk ms"]
    return table(heading, rows) + "\n\n" + source(result)


def device_steps():
    result = load("device_steps")
    kinds = ["high", "balanced", "small", "balanced_256", "int8", "exact"]
    rows = [[r["step"], r["basis"], *(f"{100 * r[kind]:.1f}" for kind in kinds)] for r in result["rows"]]
    heading = ["% of NVDEC alone, after", "basis", *(kind.replace("_", " ") for kind in kinds)]
    return table(heading, rows) + "\n\n" + source(result)


def cuda_encoder():
    result = load("cuda_encoder")
    found = {}
    for r in result["rows"]:
        found.setdefault(r["pictures"], []).append(r)
    counts = [r["count"] for r in next(iter(found.values()))]
    rows = []
    for name, row in found.items():
        rows.append([name, f"{row[-1]['bits']:.2f}", "GPU", *(f"{r['gpu_mb_per_second']:.0f}" for r in row)])
        rows.append([name, f"{row[-1]['bits']:.2f}", "CPU", *(f"{r['cpu_mb_per_second']:.0f}" for r in row)])
    return table(["MB/s, pictures a call", "bits", "on", *map(str, counts)], rows) + "\n\n" + source(result)


def device_publish():
    result = load("device_publish")
    rows = [[
        r["chunk"], f"{r['object_bytes'] / 1e6:.2f}", f"{r['host_gb_per_second']:.2f}",
        f"{r['device_host_gb_per_second']:.2f}", f"{r['device_gb_per_second']:.2f}", f"{r['one_ms']:.0f}",
    ] for r in result["rows"]]
    heading = ["chunk", "MB", "encode_chunk", "GPU, CPU codes", "GPU alone", "one chunk ms"]
    return table(heading, rows) + "\n\nGB/s of KV. " + source(result)


def interference():
    result = load("interference")
    rows = [[
        r["work"], r["beside"], f"{r['alone_ms']:.3f}", f"{r['busy_ms']:.3f}",
        f"{100 * (r['busy_ms'] / r['alone_ms'] - 1):+.1f} %", f"{r['kv_gb_per_second']:.2f}",
    ] for r in result["rows"]]
    heading = ["work", "restored beside it", "alone ms", "busy ms", "slower", "KV GB/s"]
    return table(heading, rows) + "\n\n" + source(result)


def nvdec():
    result = load("nvdec")
    rows = [[
        r["plane"], f"{r['width']}x{r['height']}", f"{r['bits']:.2f}", str(r["sessions"]),
        f"{r['gb_per_second']:.2f}", f"{r['gb_per_second'] * r['bits'] / 8:.2f}", f"{r['alone_ms']:.2f}",
    ] for r in result["rows"] if r["sessions"] in (1, 8)]
    heading = ["plane", "picture", "bits", "sessions", "GB/s", "payload GB/s", "one picture ms"]
    return table(heading, rows) + "\n\n" + source(result)


def fetch_overlap():
    result = load("fetch")
    part = result["overlap"]
    rows = [[
        f"{r['mbps']:.0f}", f"{r['transfer_seconds']:.2f}", f"{r['decode_seconds']:.2f}", f"{r['fetch_seconds']:.2f}",
        f"{r['fetch_seconds'] / max(r['transfer_seconds'], r['decode_seconds']):.3f}",
    ] for r in part["rows"]]
    heading = ["link Mb/s", "transfer alone s", "decode alone s", "fetch s", "of the slower"]
    return f"{table(heading, rows)}\n\n{part['chunks']} chunks of 256 tokens, `{part['rendition']}`; {source(result)}"


def fetch_adaptive():
    result = load("fetch")
    short = lambda name: re.sub(r"-[0-9a-f]{16}", "", name)
    rows = [[
        r["trace"], f"{r['mean_mbps']:.0f}", f"{r['adaptive_seconds']:.2f}", short(r["chosen"]),
        f"{short(r['by_average'])} {r['by_average_seconds']:.2f}", f"{r['hindsight_seconds']:.2f}",
        f"{100 * (r['adaptive_seconds'] / r['by_average_seconds'] - 1):+.0f} %",
        f"{100 * (r['adaptive_seconds'] / r['hindsight_seconds'] - 1):+.0f} %",
    ] for r in result["adaptive"]["rows"]]
    gain = sum(r["adaptive_seconds"] for r in result["adaptive"]["rows"]) / sum(
        r["by_average_seconds"] for r in result["adaptive"]["rows"])
    heading = ["link", "mean Mb/s", "adaptive s", "chose", "fixed by average s", "best fixed s",
               "to the average's", "to the best"]
    return (f"{table(heading, rows)}\n\nMean over the links: {100 * (gain - 1):+.0f} % against the rendition that the "
            f"average picks. {result['adaptive']['chunks']} chunks; {source(result)}")


def fetch_faults():
    r = load("fetch")["faults"]
    ends = ", ".join(f"{count} {name}" for name, count in sorted(r["ends"].items()))
    return (f"{r['fetches']} fetches by {r['clients']} clients, {r['faults']} faults injected: **{r['wrong']} with wrong "
            f"bytes, {r['late']} beyond the deadline** of {r['deadline_seconds']} s (longest {r['longest_seconds']:.2f} s). "
            f"{r['chunks']} chunks restored, {r['retries']} retries, {r['hedges']} hedges. Ends: {ends}.")


def scheduler():
    result = load("scheduler")
    rows = [[
        f"{r['link_gbps']:g}", f"{r['alone_ms']:.1f}", f"{r['there_ms']:.1f}", f"{r['queue_ms']:.1f}",
        f"{100 * (r['queue_ms'] / r['alone_ms'] - 1):+.1f} %", f"{r['fcfs_ms']:.1f}",
    ] for r in result["rows"]]
    heading = ["link Gb/s", "no neighbours ms", "their KV is there ms", "they fetch ms", "to none", "one queue, FCFS ms"]
    return f"{table(heading, rows)}\n\n{result['requests']} requests in simulated time; {source(result)}"


def kind_ratio(run, kind, method):
    """How many times smaller on texts of one kind; compared for CacheGen's defaults only."""
    for c in run["comparison_by_kind"][kind]:
        if c["method"] == method and c["times_smaller"]:
            return f"{c['times_smaller']:.2f}x"
    return "-"


def main():
    check = "--check" in sys.argv[1:]
    stale = []
    for name in DOCUMENTS:
        path = ROOT / name
        if not path.exists():
            continue
        text = path.read_text()

        def fill(match):
            return f"{match[1]}\n{globals()[match[2]]()}\n{match[3]}"

        new = re.sub(r"(<!-- table: (\w+) -->)\n.*?(<!-- end -->)", fill, text, flags=re.S)
        if new != text:
            stale.append(name)
            if not check:
                path.write_text(new)
    for name in stale:
        print(f"{name}: {'out of date: run scripts/update_docs.py' if check else 'updated'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
