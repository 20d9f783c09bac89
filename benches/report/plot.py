"""Plots as SVG, written by hand: no library, readable in light and dark, and a diff shows what has changed.

A line or a row is told apart by its place, its marker and its name, not by its colour alone.
"""

import math
from html import escape

WIDTH, HEIGHT = 720, 330
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 64, 48
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f }
  .paper { fill: #ffffff }
  .title { font-size: 15px; font-weight: 600 }
  .grid { stroke: #d0d7de; stroke-width: 1 }
  .line { fill: none; stroke-width: 2 }
  @media (prefers-color-scheme: dark) { .paper { fill: #0d1117 } text { fill: #e6edf3 } .grid { stroke: #3d444d } }
"""
# Of a lightness that has contrast to white and to near-black alike.
COLOURS = ["#0a7d4f", "#c4562e", "#3b76d6", "#a05cc4", "#8a7a1c", "#c2417f", "#6e7781"]
MARKERS = ["circle", "square", "diamond", "triangle"]


def document(title, body, height=HEIGHT):
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">',
        f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>",
        # Its own ground: a page may be dark where the reader's system is not.
        f'<rect width="{WIDTH}" height="{height}" rx="6" class="paper"/>', text(16, 22, title, "title"), *body, "</svg>", ""])


def text(x, y, words, kind="", anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(str(words))}</text>'


def rule(x1, y1, x2, y2, kind="grid", more=""):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}" {more}/>'


def marker(index, x, y):
    colour = COLOURS[index % len(COLOURS)]
    shape = MARKERS[index % len(MARKERS)]
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{colour}"/>'
    points = {"square": [(-4, -4), (4, -4), (4, 4), (-4, 4)], "diamond": [(0, -6), (6, 0), (0, 6), (-6, 0)],
              "triangle": [(0, -6), (6, 5), (-6, 5)]}[shape]
    path = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in points)
    return f'<polygon points="{path}" fill="{colour}"/>'


def short(value):
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"


def logarithmic(values):
    """From the power of ten below all values to the 1, 2 or 5 above them; a tick at each of those between."""
    values = [value for value in values if value > 0]
    low = 10.0 ** math.floor(math.log10(min(values)))
    steps = [low * 10 ** power * step for power in range(9) for step in (1, 2, 5)]
    high = next(step for step in steps if step >= max(values))
    ticks = [step for step in steps if step <= high]
    place = lambda value: math.log(max(value, low) / low) / math.log(high / low)
    return place, ticks if len(ticks) <= 10 else [tick for tick in ticks if f"{tick:e}"[0] == "1"]


def linear(values):
    """From nothing to a round number above all values."""
    raw = max(max(values), 1e-9) / 5
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * by for by in (1, 2, 2.5, 5, 10) if unit * by >= raw)
    high = step * math.ceil(max(values) / step + 1e-9)
    return (lambda value: value / high), [step * i for i in range(round(high / step) + 1)]


def ranges(title, rows):
    """One row each: a marker at the first value, a line through the second to the third. Logarithmic."""
    place, ticks = logarithmic([value for _, values in rows for value in values])
    left, bottom = 210, TOP + 30 * len(rows)
    at = lambda value: left + place(value) * (WIDTH - RIGHT - left - 20)
    body = []
    for tick in ticks:
        body += [rule(at(tick), TOP - 14, at(tick), bottom), text(at(tick), bottom + 18, short(tick), anchor="middle")]
    for index, (name, (first, second, third)) in enumerate(rows):
        y = TOP + 30 * index + 8
        stroke = f'stroke="{COLOURS[index % len(COLOURS)]}" stroke-width="2"'
        body += [text(left - 14, y + 4, name, anchor="end"), rule(at(first), y, at(third), y, "", stroke)]
        body += [rule(at(end), y - 5, at(end), y + 5, "", stroke) for end in (second, third)]
        body.append(marker(index, at(first), y))
    return document(title, body, bottom + 34)


def lines(title, across, points, series, log=False):
    """Values of each series at the same points, which stand at equal distances."""
    place, ticks = (logarithmic if log else linear)([value for _, values in series for value in values])
    y = lambda value: HEIGHT - BOTTOM - place(value) * (HEIGHT - TOP - BOTTOM)
    x = lambda index: LEFT + 20 + index * (WIDTH - LEFT - RIGHT - 40) / max(len(points) - 1, 1)
    body = []
    for tick in ticks:
        body += [rule(LEFT, y(tick), WIDTH - RIGHT, y(tick)), text(LEFT - 8, y(tick) + 4, short(tick), anchor="end")]
    for index, point in enumerate(points):
        body.append(text(x(index), HEIGHT - BOTTOM + 20, short(point), anchor="middle"))
    body.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, across, anchor="middle"))
    legend = 16
    for index, (name, values) in enumerate(series):
        path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in enumerate(values))
        body.append(f'<polyline points="{path}" class="line" stroke="{COLOURS[index % len(COLOURS)]}"/>')
        body += [marker(index, x(at), y(value)) for at, value in enumerate(values)]
        body += [marker(index, legend + 5, 42), text(legend + 15, 46, name)]
        legend += 34 + 7 * len(name)
    return document(title, body)
