#!/usr/bin/python3
"""Holds that each metric that src/ declares is read by a test, and declared once, and that the dashboard and the alerts of
src/deploy name no other.

usage: check_metrics.py [ROOT]       checks ROOT/src and ROOT/tests (default: the tree that this file is in); exit 0 or 1
       check_metrics.py --self-test  shows that each rule refuses what it is there to refuse

A test reads a metric by its family's name ("idetcd_claims_total", with labels behind it or without), by its member
(`counters.claims.value()`) or a pointer to that (`&Counters::claims`) in a file that names the struct, itself or by a
header of the tests: others may have a member of that name. A family that is shown without a metric of its own
(directive::Exposed) is read in a test of the whole server, in Python, too, where a histogram is its `_bucket`, `_sum` or
`_count`.
"""

import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

# metrics::Counter claims{*this, "idetcd_claims_total", …   and   log_dropped_(scope, "idetcd_log_lines_dropped_total", …
DECLARATION = re.compile(r'\b(\w+)\s*[({]\s*(?:\*this|scope|metrics),\s*"([a-zA-Z_:][a-zA-Z0-9_:]*)"')

# Exposed kRequests{"coredns_dns_requests_total", …
EXPOSED = re.compile(r'\bExposed\s+(\w+)\s*\{\s*"([a-zA-Z_:][a-zA-Z0-9_:]*)"')

# Of a query of the dashboard or an alert.
NAMED = re.compile(r"\b(?:coredns|idetcd|process)_[a-z0-9_]+")

INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)
STRUCT = re.compile(r"\bstruct\s+(\w+)")


def sources(folder, *suffixes):
    return [path for suffix in suffixes for path in sorted(folder.rglob("*" + suffix))]


def declarations(src):
    """(struct, member, family, file) of each metric; struct: None if it is not in one."""
    found = []
    for path in sources(src, ".h", ".cc"):
        if path.name in ("metrics.h", "metrics.cc"):
            continue
        text = path.read_text()
        for match in DECLARATION.finditer(text):
            structs = STRUCT.findall(text, 0, match.start())
            found.append((structs[-1] if structs else None, *match.groups(), path))
    return found


def exposed(src):
    """(constant, family, file) of each family that is shown without a metric."""
    return [(*match.groups(), path) for path in sources(src, ".h", ".cc") for match in EXPOSED.finditer(path.read_text())]


def with_headers(path, tests):
    """The text of a test's file, and of the headers of the tests that it includes."""
    seen = []
    waiting = [path]
    while waiting:
        file = waiting.pop()
        if file not in seen and file.is_file():
            seen.append(file)
            for name in INCLUDE.findall(file.read_text()):
                waiting += [(folder / name).resolve() for folder in (file.parent, tests)]
    return "\n".join(file.read_text() for file in seen)


def is_read(struct, member, family, test, context):
    """Whether the text of one test's file reads the metric; `context`: with its headers."""
    if re.search(rf'"{family}["{{]', test):
        return True
    if struct is None or not re.search(rf"\b{struct}\b", context):
        return False
    return re.search(rf"\b{member}\.(value|count|sum)\(\)|&{struct}::{member}\b", test) is not None


def is_shown(family, test):
    """Whether the text of a test in Python reads the family."""
    return re.search(rf"\b{family}(_bucket|_sum|_count)?\b", test) is not None


def unknown(root, families):
    """(file, name) of what the dashboard and the alerts ask for, and the server does not have."""
    for path in sources(root / "src" / "deploy", ".json", ".yaml"):
        for name in sorted(set(NAMED.findall(path.read_text()))):
            if name not in families and re.sub("_(bucket|sum|count)$", "", name) not in families:
                yield path, name


def check(root):
    """What is wrong, one line each."""
    tests = [(path.read_text(), with_headers(path.resolve(), (root / "tests").resolve()))
             for path in sources(root / "tests", ".h", ".cc")]
    found = declarations(root / "src")
    problems = [f"{path.relative_to(root)}: no test reads {family} ({member})"
                for struct, member, family, path in found
                if not any(is_read(struct, member, family, *test) for test in tests)]
    of_server = [path.read_text() for path in sources(root / "tests", ".py") if path.resolve() != Path(__file__).resolve()]
    shown = exposed(root / "src")
    problems += [f"{path.relative_to(root)}: no test reads {family} ({constant})"
                 for constant, family, path in shown
                 if not any(is_read(None, constant, family, *test) for test in tests)
                 and not any(is_shown(family, test) for test in of_server)]
    times = Counter([family for _, _, family, _ in found] + [family for _, family, _ in shown])
    problems += [f"{family} is declared {count} times" for family, count in sorted(times.items()) if count > 1]
    problems += [f"{path.relative_to(root)}: there is no metric {name}" for path, name in unknown(root, set(times))]
    if not found:
        problems.append("there is no metric at all")
    return problems


def problems_of(check_tree, files):
    """What it says of a tree of these files: name -> text."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return check_tree(root)


def self_test():
    def problems(declared, tests, fixture="", of_server="", deployed=""):
        declared = f"struct Counters : metrics::Group {{\n{declared}" if "*this" in declared else declared
        return problems_of(check, {"src/a/counters.h": declared, "tests/a_test.cc": tests, "tests/support/fixture.h": fixture,
                                   "tests/e2e/test_a.py": of_server, "src/deploy/a/alerts.yaml": deployed})

    one = 'metrics::Counter asked{*this, "x_asked_total", "Asked."};\n'
    broken = '  metrics::Gauge open{*this,\n      "x_open",\n "Open."};\n'
    shown = one + 'constexpr Exposed kShown{"x_shown",\n    Kind::kHistogram, "Shown."};\n'
    ours = one.replace("x_", "idetcd_") + 'constexpr Exposed kShown{"idetcd_shown", "Shown."};\n'
    asked = "Counters counters; counters.asked.value()"
    function = 'open_(metrics, "x_open", "Open.", [] { return 1.0; })'
    cases = [
        (one, "const Counters counters;\nEXPECT_EQ(counters.asked.value(), 1)", 0),
        (one, "EXPECT_EQ(counters.asked.value(), 1)", 1),
        (one, "OtherCounters counters;\nEXPECT_EQ(counters.asked.value(), 1)", 1),
        (one, '#include "support/fixture.h"\nEXPECT_EQ(counters().asked.value(), 1)', 0, "const Counters& counters();"),
        (one, '#include "support/fixture.h"\nEXPECT_EQ(counters().asked.value(), 1)', 1, "const Others& counters();"),
        (one, 'values.at("x_asked_total{a=1}")', 0),
        (one, 'sumOf(registry, "x_asked_total")', 0),
        (one, "{&Counters::asked}", 0),
        (one, "{&OtherCounters::asked}", 1),
        (one, "Counters counters; counters.asked.add()", 1),
        (one, "Counters counters; counters.unasked.value()", 1),
        (one, 'values.at("x_asked_total_2")', 1),
        (one + broken, "Counters counters; counters.asked.value()", 1),
        (broken, "Counters counters; counters.open.value()", 0),
        (function, "", 1),
        (function, '"x_open"', 0),
        (one + one, "Counters counters; counters.asked.value()", 1),
        (shown, asked, 1),
        (shown, asked + '"x_shown"', 0),
        (shown, asked, 0, "", "sum(rate(x_shown_bucket[10s])) by (le)"),
        (shown, asked, 1, "", "x_shown_more x_shown_seconds_sum"),
        (shown + shown.replace(one, ""), asked, 1, "", "x_shown"),
        (one, "", 1, "", "x_asked_total"),
        (ours, asked + '"idetcd_shown"', 0, "", "", "rate(idetcd_asked_total[5m]) + idetcd_shown_bucket"),
        (ours, asked + '"idetcd_shown"', 1, "", "", "rate(idetcd_asks_total[5m])"),
        ("", "", 1),
    ]
    wrong = [case for case in cases if len(problems(case[0], case[1], *case[3:])) != case[2]]
    for case in wrong:
        print(f"check_metrics: not as expected: {case}")
    return not wrong


def main():
    if sys.argv[1:] == ["--self-test"]:
        return 0 if self_test() else 1
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    problems = check(root)
    for problem in problems:
        print(problem)
    count = len(declarations(root / "src")) + len(exposed(root / "src"))
    print(f"check_metrics: {count} metrics, {len(problems)} problem(s)")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
