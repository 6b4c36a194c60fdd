# SPDX-License-Identifier: Apache-2.0
"""Curves of bits a value against KL as an SVG of its own: logarithmic axes, a line a family.

Usage: plot.py [RESULTS.json] [OUT.svg]
"""

import html
import json
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 880, 520, 70, 255, 42, 56
COLOURS = ["#0b6e4f", "#c1121f", "#e07a5f", "#7b5ea7", "#1d6fb8", "#6c9bd2", "#555555"]


def ticks(low, high, steps=(1, 2, 5)):
    out = []
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        out += [s * 10.0**power for s in steps if low <= s * 10.0**power <= high]
    return out


class Axis:
    def __init__(self, values, start, end):
        self.low, self.high = min(values) / 1.25, max(values) * 1.25
        self.start, self.end = start, end

    def at(self, value):
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)


def draw(series, title):
    """series: [(label, [(bits, kl, note)])]; points without damage (kl 0) have no place and are left
    out. Returns the SVG's text."""
    series = [(label, sorted(p for p in points if p[1] > 0)) for label, points in series]
    series = [(label, points) for label, points in series if points]
    every = [p for _, points in series for p in points]
    if not every:
        raise ValueError("plot: no point has a KL above 0")
    x = Axis([p[0] for p in every], LEFT, WIDTH - RIGHT)
    y = Axis([p[1] for p in every], HEIGHT - BOTTOM, TOP)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
           'font-family="sans-serif" font-size="13">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="24" font-size="15" font-weight="bold">{html.escape(title)}</text>']
    for value in ticks(x.low, x.high):
        at = x.at(value)
        out.append(f'<path d="M{at:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#e4e4e4"/>'
                   f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value:g}</text>')
    for value in ticks(y.low, y.high, (1, 3)):
        at = y.at(value)
        out.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="#e4e4e4"/>'
                   f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{value:g}</text>')
    out.append(f'<rect x="{LEFT}" y="{TOP}" width="{WIDTH - RIGHT - LEFT}" height="{HEIGHT - BOTTOM - TOP}" '
               'fill="none" stroke="#888"/>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    out.append(f'<text x="{middle}" y="{HEIGHT - 14}" text-anchor="middle">bits a value, whole objects</text>'
               f'<text transform="translate(18 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">'
               'KL of the continuation, nats a token</text>')
    for index, (label, points) in enumerate(series):
        colour = COLOURS[index % len(COLOURS)]
        dots = [(x.at(bits), y.at(kl), note) for bits, kl, note in points]
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b, _ in dots)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" '
                   f'stroke-width="{3 if index == 0 else 1.6}"/>')
        for a, b, note in dots:
            out.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4" fill="{colour}"/>')
            if note:
                out.append(f'<text x="{a + 7:.1f}" y="{b - 6:.1f}" font-size="12" fill="{colour}">'
                           f"{html.escape(note)}</text>")
        at = TOP + 16 + 24 * index
        out.append(f'<path d="M{WIDTH - RIGHT + 14} {at}h24" stroke="{colour}" stroke-width="3"/>'
                   f'<text x="{WIDTH - RIGHT + 44}" y="{at + 4}">{html.escape(label)}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def main():
    results = json.loads(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                                      ROOT / "bench/results/fidelity.json").read_text())
    out = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "docs/fidelity.svg")
    run = results["models"][0]
    series = [(f["label"], [(p["bits_per_value"], p["kl"], p.get("note", "")) for p in f["points"]])
              for f in run["families"]]
    out.write_text(draw(series, f"{pathlib.Path(run['file']).stem}: size against damage, {run['texts']} texts not calibrated on"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
