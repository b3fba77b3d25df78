"""The results as text and as a chart."""

import html
import os
import platform

from pairs import WIDE
from verdicts import bound_of, figure

MISSING = "–"


def describe_machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "?")
    return f"{os.cpu_count()} × {model}, Linux {platform.release()}, {platform.machine()}"


# --- text ---

IDLE = 0.01  # of a core: more is not asleep


def as_text(results, machine, settings):
    plan = settings.plan
    lines = [f"{machine}; server on core 0, load on core 1",
             f"ratio: the median of pairs of slices of {plan.slice} ms{' (quick)' if settings.quick else ''}, server and reference "
             "(the first line) in turn, both running; in brackets its 95 % interval",
             f"{plan.least} pairs, and more until the interval is ±{plan.narrow:.0%}, at most {plan.most}; WIDE: it is wider than "
             f"±{WIDE:.0%} even so",
             "answers/s, and its ratio: of the time in which nothing else used the two cores; waited: the rest of the time, as a share",
             "by CPU: the same ratio, of the server's processor time a query", ""]
    for result in results:
        lines += [heading(result)]
        if any("rate" in row and "note" not in row for row in result["rows"]) or result["kind"] == "Latency":
            lines += rates(result["rows"])
        else:
            lines += values(result["rows"])
        lines += [""]
    return "\n".join(lines)


def heading(result):
    wanted = next((row for row in result["rows"] if "target" in row), None)
    if not wanted:
        return result["case"]
    return f"{result['case']}   ({'must be' if wanted['gate'] else 'wanted'}: {bound_of(wanted)} {wanted['target']:g})"


def rates(rows):
    table = [["", "answers/s", "ratio", "", "pairs", "CPU µs", "by CPU", "", "waited", "p50 µs", "p99 µs", "p999 µs", "RSS MB", ""]]
    for row in rows:
        by_cpu = row.get("by_cpu", {})
        table.append([
            row["server"], number(row, "rate", ",.0f"), number(row, "ratio", ".3f"), interval(row), number(row, "pairs", "d"),
            number(row, "cpu_us", ".2f"), number(by_cpu, "ratio", ".3f"), interval(by_cpu), number(row, "waited", ".0%"), number(row, "p50_us", ",.1f"),
            number(row, "p99_us", ",.0f"), number(row, "p999_us", ",.0f"),
            f"{row['memory'] / 1e6:,.1f}" if row.get("memory") else MISSING, remarks(row)])
    return aligned(table)


def interval(row):
    return f"[{row['low']:.3f} {row['high']:.3f}]" if "low" in row else ""


def remarks(row):
    notes = []
    if row.get("wide"):
        notes.append("WIDE")
    if row.get("wrong"):
        notes.append(f"{row['wrong']} WRONG")
    if row.get("lost"):
        notes.append(f"{row['lost']} lost")
    if row.get("discarded"):
        notes.append(f"{row['discarded']} pairs without a ratio")
    if row.get("idle_busy", 0) > IDLE:
        notes.append(f"takes {row['idle_busy']:.1%} of its core while it is not asked")
    return ", ".join(notes)


def values(rows):
    return aligned([[row.get("query", row["server"]), f"{figure(row):,.3f} {row['unit']}", interval(row),
                     ", ".join(filter(None, [row.get("note"), remarks(row)]))] for row in rows])


def number(row, field, form):
    return format(row[field], form) if field in row else MISSING


def aligned(table):
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    # The first and the last column to the left, numbers to the right.
    return ["  " + "  ".join(cell.ljust(width) if i in (0, len(row) - 1) else cell.rjust(width)
                             for i, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in table]


# --- chart ---

BAR, GAP, LEFT, WIDTH = 18, 6, 190, 560
COLOURS = {"idetcd": "#1a7f5a", "echo": "#9aa3ab"}


def as_svg(results, machine):
    """Rates as shares of the echo's: one group of bars a case."""
    groups = [(result["case"], [(row["server"], row["ratio"]) for row in result["rows"] if "ratio" in row])
              for result in results if result["kind"] in ("Rate", "CachedRate") and result["rows"]
              and result["rows"][0]["server"] == "echo"]
    body, y = [text(10, 22, "Answers a second, as a share of a bare UDP echo's", size=15, weight="bold"),
               text(10, 40, machine, fill="#666", size=11)], 62
    top = y
    for name, bars in groups:
        body.append(text(10, y + 12, name, weight="bold"))
        y += 20
        for server, ratio in sorted(bars, key=lambda bar: -bar[1]):
            colour = COLOURS.get(server.split(",")[0], "#7f96b2")
            body.append(text(LEFT - 8, y + 13, server, anchor="end"))
            body.append(f'<rect x="{LEFT}" y="{y}" width="{min(ratio, 1.1) * WIDTH / 1.1:.1f}" height="{BAR}" fill="{colour}"/>')
            body.append(text(LEFT + min(ratio, 1.1) * WIDTH / 1.1 + 6, y + 13, f"{ratio:.2f}"))
            y += BAR + GAP
        y += 12
    line = LEFT + WIDTH / 1.1
    body.append(f'<line x1="{line:.1f}" y1="{top}" x2="{line:.1f}" y2="{y - 10}" stroke="{COLOURS["echo"]}" stroke-dasharray="4 3"/>')
    body.append(text(line, y + 4, "the echo", anchor="middle", fill="#666", size=11))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 50}" height="{y + 16}" '
            'font-family="sans-serif">\n<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(body) + "\n</svg>\n")


def text(x, y, content, size=12, weight="normal", anchor="start", fill="#222"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
            f'fill="{fill}">{html.escape(content)}</text>')
