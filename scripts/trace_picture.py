#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the spans of `kvcodec fetch --trace` as an SVG: a row a track, time to the right, a colour a
rendition. For documents; to look into a trace, open it in Perfetto.

Usage: trace_picture.py TRACE.json OUT.svg [TITLE]
"""

import html
import json
import pathlib
import sys

WIDTH, LEFT, RIGHT, TOP, LANE, GAP, FOOT = 960, 130, 16, 56, 18, 16, 44
COLOURS = ["#1d6fb8", "#e07a5f", "#0b6e4f", "#7b5ea7", "#c1121f", "#555555"]
ORDER = ["plan", "transfer", "decode and restore"]


def read(path):
    """([(track, name, begin, end, rendition)], seconds since the first)."""
    events = json.loads(pathlib.Path(path).read_text())["traceEvents"]
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = [e for e in events if e["ph"] == "X"]
    first = min(e["ts"] for e in spans)
    found = []
    for e in spans:
        details = e["args"]
        rendition = details.get("rendition") or details.get("object", "").rsplit("/", 1)[-1]
        begin = (e["ts"] - first) / 1e6
        found.append((tracks[e["tid"]], e["name"], begin, begin + e["dur"] / 1e6, rendition))
    return sorted(found, key=lambda span: span[2])


def lanes(spans):
    """Spans that overlap lie below each other: [(lane, span)], and how many lanes there are."""
    ends, placed = [], []
    for span in spans:
        lane = next((i for i, end in enumerate(ends) if end <= span[2] + 1e-9), len(ends))
        ends[lane:lane + 1] = [span[3]]
        placed.append((lane, span))
    return placed, len(ends)


def tier(rendition):
    parts = rendition.split("-")
    return "-".join([parts[0], *[p for p in parts[1:] if p.startswith("h")]])


def draw(spans, title):
    total = max(span[3] for span in spans)
    names = sorted({tier(span[4]) for span in spans if span[4]})
    colour = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    scale = (WIDTH - LEFT - RIGHT) / total
    body, y = [], TOP
    for track in ORDER:
        placed, count = lanes([span for span in spans if span[0] == track])
        body.append(f'<text x="{LEFT - 10}" y="{y + 13}" text-anchor="end">{html.escape(track)}</text>')
        for lane, (_, name, begin, end, rendition) in placed:
            x, width = LEFT + begin * scale, max(0.8, (end - begin) * scale)
            top = y + lane * LANE
            fill = colour.get(tier(rendition), "#999")
            body.append(f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{LANE - 3}" fill="{fill}" '
                        f'stroke="white" stroke-width="0.6"><title>{html.escape(f"{name} {rendition}")}</title></rect>')
            label = name.removeprefix("chunk ")
            if width > 7 * len(label) + 4:
                body.append(f'<text x="{x + width / 2:.1f}" y="{top + 12}" text-anchor="middle" fill="white" '
                            f'font-size="10">{html.escape(label)}</text>')
        y += max(1, count) * LANE + GAP
    height = y + FOOT
    step = next(s * 10.0**p for p in range(-4, 4) for s in (1, 2, 5) if total / (s * 10.0**p) <= 10)
    axis = []
    for i in range(int(total / step) + 1):
        x = LEFT + i * step * scale
        axis.append(f'<path d="M{x:.1f} {TOP - 6}V{y}" stroke="#e4e4e4"/>'
                    f'<text x="{x:.1f}" y="{y + 14}" text-anchor="middle">{i * step:g} s</text>')
    legend, x = [], LEFT
    for name in names:
        legend.append(f'<rect x="{x}" y="{y + 24}" width="12" height="12" fill="{colour[name]}"/>'
                      f'<text x="{x + 17}" y="{y + 34}">{html.escape(name)}</text>')
        x += 40 + 8 * len(name)
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
            f'font-size="12">\n<rect width="{WIDTH}" height="{height}" fill="white"/>\n'
            f'<text x="{LEFT}" y="26" font-size="15" font-weight="bold">{html.escape(title)}</text>')
    return "\n".join([head, *axis, *body, *legend, "</svg>", ""])


def main():
    if len(sys.argv) not in (3, 4):
        print(__doc__)
        return 2
    title = sys.argv[3] if len(sys.argv) == 4 else "Spans of a fetch"
    pathlib.Path(sys.argv[2]).write_text(draw(read(sys.argv[1]), title))
    return 0


if __name__ == "__main__":
    sys.exit(main())
