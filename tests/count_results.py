#!/usr/bin/python3 -B
"""count_results.py FOLDER: adds up the JUnit reports in it, for tools/test. Prints a line for each, each skipped test with
its reason, and at last `N passed, N failed, N skipped`; exit 0 only if something passed and nothing failed."""

import re
import sys
import xml.etree.ElementTree as tree
from pathlib import Path

# What GoogleTest prints of a test that skips itself; ctest keeps it as output.
GTEST_REASON = re.compile(r": Skipped\n(.*)")


def reason_of(case):
    skipped = case.find("skipped")
    output = case.findtext("system-out") or ""
    return (match[1] if (match := GTEST_REASON.search(output)) else skipped.get("message")) or "no reason given"


def main():
    totals = [0, 0, 0]
    reasons = []
    for path in sorted(Path(sys.argv[1]).glob("*.xml")):
        passed = failed = skipped = 0
        report = tree.parse(path)
        for suite in report.iter("testsuite"):
            count = lambda name: int(suite.get(name) or 0)  # noqa: E731
            failed += count("failures") + count("errors")
            skipped += count("skipped") + count("disabled")
            passed += count("tests") - count("failures") - count("errors") - count("skipped") - count("disabled")
        if passed + failed == 0:
            failed = 1  # a step that ran no test proves nothing
        print(f"{path.stem}: {passed} passed, {failed} failed, {skipped} skipped")
        reasons += [f"skipped: {path.stem}: {case.get('name')}: {reason_of(case)}"
                    for case in report.iter("testcase") if case.find("skipped") is not None]
        totals = [total + of_this for total, of_this in zip(totals, (passed, failed, skipped))]
    print(*reasons, sep="\n", end="\n" if reasons else "")
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped")
    sys.exit(1 if totals[1] or not totals[0] else 0)


if __name__ == "__main__":
    main()
