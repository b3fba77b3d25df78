#!/usr/bin/python3 -B
"""count_results.py FOLDER: adds up the JUnit reports in it, for tools/test. Prints a line for each, each skipped test with
its reason, and at last `N passed, N failed, N skipped`; exit 0 only if something passed and nothing failed.

A test of ctest's is a whole program of GoogleTest where FOLDER/<report>/<test>.xml is what that program reports; without
that, it has crashed, or is no such program, and counts as one."""

import re
import sys
import xml.etree.ElementTree as tree
from collections import Counter
from pathlib import Path

# GoogleTest's line for a test that skips itself.
GTEST_REASON = re.compile(r": Skipped\n(.*)")


def reason_of(case):
    skipped = case.find("skipped")
    output = case.findtext("system-out") or ""
    message = (skipped.get("message") or "").strip().rpartition("\n")[2]
    return (match[1] if (match := GTEST_REASON.search(output)) else message) or "no reason given"


def cases_of(path):
    """Its testcases, each with its full name."""
    report = tree.parse(path)
    programs = {program.stem: program for program in path.with_suffix("").glob("*.xml")}
    for case in report.iter("testcase"):
        program = programs.get(case.get("name"))
        inner = list(tree.parse(program).iter("testcase")) if program else []
        yield from ((f"{case.get('name')}: {test.get('classname')}.{test.get('name')}", test) for test in inner)
        # A leak, say, is found after the last test.
        if not inner or (verdict_of(case) == "failed" and "failed" not in map(verdict_of, inner)):
            yield case.get("name"), case
    # Of a step that has no testcases.
    for suite in report.iter("testsuite"):
        if suite.find("testcase") is None:
            for _ in range(int(suite.get("failures") or 0)):
                yield path.stem, tree.fromstring("<testcase><failure/></testcase>")
            for _ in range(int(suite.get("tests") or 0) - int(suite.get("failures") or 0)):
                yield path.stem, tree.fromstring("<testcase/>")


def verdict_of(case):
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
        return "skipped"
    return "passed"


def main():
    totals = Counter()
    reasons = []
    for path in sorted(Path(sys.argv[1]).glob("*.xml")):
        cases = list(cases_of(path))
        counts = Counter(verdict_of(case) for _, case in cases)
        if not counts["passed"] + counts["failed"]:
            counts["failed"] = 1  # a step that ran no test proves nothing
        print(f"{path.stem}: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
        reasons += [f"skipped: {path.stem}: {name}: {reason_of(case)}" for name, case in cases if case.find("skipped") is not None]
        totals += counts
    print(*reasons, sep="\n", end="\n" if reasons else "")
    print(f"{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped")
    sys.exit(1 if totals["failed"] or not totals["passed"] else 0)


if __name__ == "__main__":
    main()
