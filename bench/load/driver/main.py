"""bench/load/run: idetcd and its peers under the same load, beside the echo that no socket server can outrun.

The server runs on core 0, the load on core 1. Every run of a server follows a run of the echo, and its ratio is to that
one: what else the machine does meets both. Every answer is checked (bench/load/load.cc)."""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from project import ROOT  # first: it makes the test harness importable

import cases
import report
import resolver_cases
from lab import Lab

CASES = cases.list_cases() + resolver_cases.list_cases()


def main():
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # unwinds, so that all is cleaned up
    build = os.path.abspath(arguments.build)
    if not arguments.no_build:
        build_programs(build)
    chosen = [case for case in CASES if not arguments.only or arguments.only in case.name or arguments.only == case.group]
    if arguments.quick and not arguments.only:
        chosen = [case for case in chosen if case.in_quick]
    if not chosen:
        sys.exit(f"no case's name contains '{arguments.only}'; there are:\n" + names_of_cases())
    settings = cases.QUICK if arguments.quick else cases.FULL
    if arguments.rounds:
        settings = settings._replace(rounds=arguments.rounds)

    results = []
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="idetcd-bench-") as directory, Lab(directory, build, settings) as lab:
        for case in chosen:
            print(f"[{time.monotonic() - started:4.0f} s] {case.name}", file=sys.stderr)
            results.append(case.run(lab, settings))
        missing = sorted(lab.missing)
    write(os.path.join(build, "bench"), results, settings, arguments.quick)
    if missing:
        print(f"not installed, so not measured: {', '.join(missing)}")
    print(f"took {time.monotonic() - started:.0f} s")
    return 1 if any(row.get("wrong") for result in results for row in result["rows"]) else 0


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="bench/load/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="cases:\n" + names_of_cases())
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs: under two minutes")
    parser.add_argument("--only", metavar="NAME", help="the cases whose name contains NAME; 'resolver': all that are marked so")
    parser.add_argument("--rounds", type=int, metavar="N", help="pairs of runs for each server (5, with --quick 3)")
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"), metavar="DIR",
                        help="the build folder; results go to DIR/bench (build/release)")
    parser.add_argument("--no-build", action="store_true", help="measure what is built, as it is")
    return parser.parse_args()


def names_of_cases():
    return "".join(f"  {case.name}{f'   [{case.group}]' if case.group else ''}"
                   f"{'' if case.in_quick else '   (not with --quick)'}\n" for case in CASES)


def build_programs(build):
    """What is measured must be what is in the tree."""
    if not os.path.exists(os.path.join(build, "build.ninja")):
        run_quietly(["cmake", "--preset", "release", "-S", ROOT, "-B", build])
    run_quietly(["cmake", "--build", build, "--target", "idetcd", "load", "echo", "etcd_fill", "put_latency",
                 "hit_instructions", "table_bench", "stalled_upstream"])


def run_quietly(argv):
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(argv)} failed:\n{(done.stdout + done.stderr)[-4000:]}")


def write(folder, results, settings, quick):
    machine = report.describe_machine()
    text = report.as_text(results, machine, settings, quick)
    print(text)
    for name, content in (("results.txt", text),
                          ("results.json", json.dumps({"machine": machine, "quick": quick, "results": results}, indent=1)),
                          ("results.svg", report.as_svg(results, machine))):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(content)
    print(f"written: {folder}/results.txt, .json, .svg")


if __name__ == "__main__":
    sys.exit(main())
