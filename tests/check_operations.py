#!/usr/bin/python3
"""Holds that src/docs/operations.md has each metric and each warning of the server, and nothing that the server does not have;
and that each metric that it says to watch has an alert in src/deploy.

usage: check_operations.py [ROOT]       checks ROOT/src (default: the tree that this file is in); exit 0 or 1
       check_operations.py --self-test  shows that each rule refuses what it is there to refuse

A message of the page is the first cell of a row below "## Messages"; what is filled in is written in capitals. It is that of a call of
log.warning() or log.error() if it has all of its fixed text in the same order. A message that comes from elsewhere (`warning("{}", text)`)
is a string of its own in the code, of which the page has to have the fixed text.
"""

import re
import sys
from pathlib import Path

import check_metrics

CALL = re.compile(r"\blog(?:_|ger_?|\(\))?\s*(?:(?:\.|->)\s*named\([^()]*\)\s*)?(?:\.|->)\s*(?:warning|error)\(")
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
FAMILY = re.compile(r"`((?:coredns|idetcd|process)_[a-z0-9_]+)`")
ROW = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
WATCHED = re.compile(r"^### Watch these\n(.*?)^###? ", re.MULTILINE | re.DOTALL)

# The first is always 0. The second is above the lease when idetcd_names_fresh, which has an alert, is 0.
WITHOUT_ALERT = {"coredns_panics_total", "idetcd_names_age_seconds"}


def literals(text):
    """The string literals, those that stand side by side as one, as (position, text)."""
    found = []
    end = None
    for match in STRING.finditer(text):
        content = match[1].replace('\\"', '"')
        if found and text[end:match.start()].isspace():
            found[-1] = (found[-1][0], found[-1][1] + content)
        else:
            found.append((match.start(), content))
        end = match.end()
    return found


def fixed(text):
    """What is not filled in, in order."""
    return [part for part in re.split(r"\{[^{}]*\}", text) if part.strip(" :;()")]


def contains(message, parts):
    """Whether it has all parts, in their order."""
    place = 0
    for part in parts:
        place = message.find(part.strip(), place)
        if place < 0:
            return False
        place += len(part.strip())
    return True


def calls(src):
    """(file, format) of each warning and error that is logged, but for those that have no text of their own."""
    for path in check_metrics.sources(src, ".h", ".cc"):
        text = path.read_text()
        strings = literals(text)
        for call in CALL.finditer(text):
            first = next(((at, string) for at, string in strings if at >= call.end()), None)
            if first and text[call.end():first[0]].isspace() | (first[0] == call.end()) and fixed(first[1]):
                yield path, first[1]


def check(root):
    """What is wrong, one line each."""
    src = root / "src"
    page = (src / "docs" / "operations.md").read_text()
    metrics_of_page, _, messages_of_page = page.partition("\n## Messages\n")
    messages = ROW.findall(messages_of_page)
    said = list(calls(src))
    problems = [f'{path.relative_to(root)}: operations.md lacks "{text}"' for path, text in said
                if not any(contains(message, fixed(text)) for message in messages)]
    strings = [fixed(string) for path in check_metrics.sources(src, ".h", ".cc") for _, string in literals(path.read_text())]
    strings = [parts for parts in strings if len("".join(parts)) >= 8 or len(parts) > 1]
    problems += [f'operations.md: nothing says "{message}"' for message in messages
                 if not any(contains(message, parts) for parts in strings)]
    families = {family for _, _, family, _ in check_metrics.declarations(src)}
    families |= {family for _, family, _ in check_metrics.exposed(src)}
    named = set(FAMILY.findall(metrics_of_page))
    problems += [f"operations.md lacks {family}" for family in sorted(families - named)]
    problems += [f"operations.md: there is no metric {family}" for family in sorted(named - families)]
    watched = {name for table in WATCHED.findall(page) for row in ROW.findall(table) for name in FAMILY.findall(f"`{row}`")}
    alerts = src / "deploy" / "prometheus" / "alerts.yaml"
    alerted = set(check_metrics.NAMED.findall(alerts.read_text() if alerts.is_file() else ""))
    problems += [f"alerts.yaml lacks {name}, which operations.md says to watch" for name in sorted(watched - alerted - WITHOUT_ALERT)]
    if not said or not families:
        problems.append("no messages, or no metrics at all")
    return problems


def self_test():
    code = ('metrics::Counter asked{*this, "idetcd_asked_total", "Asked."};\n'
            'log_.warning("{} is away: {}", a, b);\nlog_.error("{}", text);\nfail("the disk is full");\n')
    page = ("`idetcd_asked_total`\n## Messages\n| message | cause |\n|---|---|\n"
            "| `NAME is away: REASON` | x |\n| `the disk is full` | x |\n")
    cases = [
        (code, page, 0),
        (code + 'log_->error(\n      "a second "\n      "line {}", x);\n', page, 1),
        (code + 'log_->error(\n      "a second "\n      "line {}", x);\n', page + "| `a second line N` | x |\n", 0),
        (code, page + "| `nobody says this` | x |\n", 1),
        (code, page.replace("NAME is away: REASON", "NAME has gone: REASON"), 2),
        (code.replace("asked_total", "asks_total"), page, 2),
        ("", page, 4),
    ]
    watched = page.replace("## Messages", "### Watch these\n| `idetcd_asked_total` | rises |\n## Messages")
    cases += [(code, watched, 1), (code, watched, 0, "increase(idetcd_asked_total[1m])")]
    passed = True
    for source, text, count, *alerts in cases:
        problems = check_metrics.problems_of(check, {"src/a.cc": source, "src/docs/operations.md": text,
                                                     "src/deploy/prometheus/alerts.yaml": "".join(alerts)})
        if len(problems) != count:
            print(f"check_operations: {count} expected: {problems}")
            passed = False
    return passed


def main():
    if sys.argv[1:] == ["--self-test"]:
        return 0 if self_test() else 1
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    problems = check(root)
    for problem in problems:
        print(problem)
    print(f"check_operations: {len(problems)} problem(s)")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
