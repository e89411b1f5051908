#!/usr/bin/env python3
"""Draws coloured terminal output as SVG, for the documents.

    tests/launchers/svg.py < ctl/testdata/picture.txt > docs/images/list.svg

The output of a command: gpukillctl list --color always --width 110 | tests/launchers/svg.py > FILE

Reads UTF-8 with SGR escapes (bold, dim, and the 8 and 16 colours) from standard input.
"""
import html
import re
import sys
import unicodedata

FONT_SIZE = 14
CELL_WIDTH = 8.43  # of a monospaced font of this size
LINE_HEIGHT = 19
MARGIN = 16
BACKGROUND = "#16181d"
FOREGROUND = "#d8dbe2"
COLOURS = ["#5b616e", "#e06c75", "#7fbf7f", "#e0b35c", "#6ca5e0", "#c586c0", "#56b6c2", "#d8dbe2"]


def styled_runs(line):
    """Yields (style, text) of one line; a style is a set of SVG attributes as text."""
    style = {}
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        code = re.fullmatch(r"\x1b\[([0-9;]*)m", part)
        if not code:
            if part:
                yield " ".join(f'{key}="{value}"' for key, value in style.items()), part
            continue
        for number in (int(it or 0) for it in code[1].split(";")):
            if number == 0:
                style = {}
            elif number == 1:
                style["font-weight"] = "bold"
            elif number == 2:
                style["opacity"] = "0.6"
            elif 30 <= number <= 37:
                style["fill"] = COLOURS[number - 30]
            elif 90 <= number <= 97:
                style["fill"] = COLOURS[number - 90]


def width(text):
    """Columns that a terminal gives to a text."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def main():
    lines = [line.rstrip("\n") for line in sys.stdin]
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    columns = max(map(width, plain), default=0)
    total = (columns * CELL_WIDTH + 2 * MARGIN, len(lines) * LINE_HEIGHT + 2 * MARGIN)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total[0]:.0f} {total[1]:.0f}">')
    print(f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>')
    print(f'<g font-family="ui-monospace, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" '
          f'font-size="{FONT_SIZE}" fill="{FOREGROUND}" xml:space="preserve">')
    for row, line in enumerate(lines):
        column, y = 0, MARGIN + (row + 0.75) * LINE_HEIGHT
        for style, text in styled_runs(line):
            # The length keeps columns aligned whatever font a viewer has.
            length = width(text) * CELL_WIDTH
            x = MARGIN + column * CELL_WIDTH
            if text.strip():
                print(f'<text x="{x:.1f}" y="{y:.1f}" textLength="{length:.1f}" '
                      f'lengthAdjust="spacingAndGlyphs" {style}>{html.escape(text)}</text>')
            column += width(text)
    print("</g>\n</svg>")


main()
