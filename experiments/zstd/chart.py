"""Size against time as SVG: points joined by group, both scales logarithmic."""

import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 900, 560, 90, 20, 220, 60
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#8b5a2b", "#7b3294", "#a6761d"]


def ticks(low, high):
    """1, 2 and 5 of every power of ten between the ends."""
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for step in (1, 2, 5):
            value = step * 10.0**power
            if low <= value <= high:
                yield value


class Scale:
    def __init__(self, values, start, end):
        self.low, self.high = 0.9 * min(values), 1.1 * max(values)
        self.start, self.end = start, end

    def __call__(self, value):
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)


def scatter(groups, x_title, y_title):
    points = [point for group in groups.values() for point in group]
    if not points:
        return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"/>\n'
    x = Scale([max(point[0], 0.01) for point in points], LEFT, WIDTH - RIGHT)
    y = Scale([point[1] for point in points], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for value in ticks(x.low, x.high):
        parts.append(f'<path d="M{x(value):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>')
        parts.append(f'<text x="{x(value):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value:g}</text>')
    for value in ticks(y.low, y.high):
        parts.append(f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:,.0f}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 15}" text-anchor="middle">{escape(x_title)}</text>')
    parts.append(f'<text x="20" y="{HEIGHT / 2}" transform="rotate(-90 20 {HEIGHT / 2})" text-anchor="middle">{escape(y_title)}</text>')
    for number, (name, group) in enumerate(groups.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [(x(max(time, 0.01)), y(size), label) for time, size, label in group]
        line = " ".join(f"{left:.1f},{top:.1f}" for left, top, _ in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-opacity=".5"/>')
        for left, top, label in places:
            parts.append(f'<circle cx="{left:.1f}" cy="{top:.1f}" r="4" fill="{colour}"><title>{escape(label)}</title></circle>')
        top = TOP + 12 + 20 * number
        parts.append(f'<circle cx="{WIDTH - RIGHT + 20}" cy="{top}" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 32}" y="{top + 4}">{escape(name)}</text>')
    return "\n".join(parts) + "\n</svg>\n"
