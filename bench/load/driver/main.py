"""bench/load/run: idetcd and its peers under the same load, beside the echo that no socket server can outrun.

The servers run on core 0, the load on core 1. Server and echo are asked in turn, in slices of 100 ms, while both keep
running, and the ratio of each pair is taken: what else the machine does meets both. Printed is the median with its 95 %
interval (pairs.py). Every answer is checked (bench/load/load.cc). At the end it says which of the things that must hold do;
the exit status is 1 if one does not, or if an answer was wrong."""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile

from project import ROOT  # first: it makes the test harness importable

import cases
import encrypted_cases
import pairs
import report
import resolver_cases
import verdicts
import xdp_cases
import zone_cases
from lab import Lab

CASES = [case for group in (cases, resolver_cases, zone_cases, encrypted_cases, xdp_cases) for case in group.list_cases()]


def main():
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # unwinds, so that all is cleaned up
    build = os.path.abspath(arguments.build)
    if not arguments.no_build:
        build_programs(build)
    chosen = [case for case in CASES if is_chosen(case, arguments)]
    if not chosen:
        sys.exit(f"no case's name contains {' or '.join(map(repr, arguments.only))}; there are:\n" + names_of_cases())
    earlier = read_rows(arguments.compare) if arguments.compare else []
    settings = cases.QUICK if arguments.quick else cases.FULL
    if arguments.pairs:
        least, _, most = arguments.pairs.partition("-")
        settings = settings._replace(plan=settings.plan._replace(least=int(least), most=int(most or least)))

    results = []
    with tempfile.TemporaryDirectory(prefix="idetcd-bench-") as directory, Lab(directory, build, settings) as lab:
        for case in chosen:
            lab.say(case.name)
            results.append(case.run(lab, settings))
    rows = [row for result in results for row in result["rows"]]
    judged = verdicts.of_run(rows)
    measured = {result["of"] for result in results if result["rows"]}
    unmeasured = [case.name for case in chosen if case.gate and case.name not in measured]
    differences = verdicts.compare(rows, earlier)
    write(os.path.join(build, "bench"), results, settings)
    if judged or unmeasured:
        print(verdicts.as_text(judged, unmeasured))
    if arguments.compare:
        print(verdicts.comparison_as_text(differences))
    if lab.missing:
        print(f"not installed, so not measured: {', '.join(sorted(lab.missing))}")
    lab.say("done")
    failed = bool(unmeasured) or any(row["gate"] and verdict == "fails" for row, verdict in judged)
    return 1 if failed or verdicts.disagree(differences) or any(row.get("wrong") for row in rows) else 0


def is_chosen(case, arguments):
    if arguments.only:
        return any(text in case.name or text == case.group for text in arguments.only)
    return case.in_quick or not arguments.quick


def read_rows(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)["results"]


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="bench/load/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="cases:\n" + names_of_cases())
    parser.add_argument("--quick", action="store_true", help="fewer servers, slices of 50 ms: under two minutes")
    parser.add_argument("--only", metavar="TEXT", action="append",
                        help="the cases whose name contains TEXT; 'resolver', 'zones', 'encrypted', 'xdp': all that are marked so; may be repeated")
    parser.add_argument("--pairs", metavar="N[-M]", help="at least N pairs, at most M (40-400, with --quick 40-80)")
    parser.add_argument("--compare", metavar="FILE",
                        help="the results.json of an earlier run: exit status 1 if a ratio is not within 3 %% of it, though the machine "
                             "is as fast as it was")
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"), metavar="DIR",
                        help="the build folder; results go to DIR/bench (build/release)")
    parser.add_argument("--no-build", action="store_true", help="measure what is built, as it is")
    return parser.parse_args()


def names_of_cases():
    return "".join(f"  {case.name}{f'   [{case.group}]' if case.group else ''}"
                   f"{'' if case.in_quick else '   (not with --quick)'}\n" for case in CASES)


def build_programs(build):
    """What is measured must be what is in the tree."""
    if subprocess.run([os.path.join(ROOT, "tools", "install-packages"), "build", "programs", "quickstart", "servers", "bench"],
                      check=False).returncode:
        sys.exit("bench/load/run: packages are missing; with --no-build it measures what is there")
    if not os.path.exists(os.path.join(build, "build.ninja")):
        run_quietly(["cmake", "--preset", "release", "-S", ROOT, "-B", build])
    run_quietly(["cmake", "--build", build, "--target", "idetcd", "load", "echo", "etcd_fill", "put_latency",
                 "hit_instructions", "stalled_upstream", "beside_writer"])


def run_quietly(argv):
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(argv)} failed:\n{(done.stdout + done.stderr)[-4000:]}")


def write(folder, results, settings):
    machine = report.describe_machine()
    text = report.as_text(results, machine, settings)
    print(text)
    for name, content in (("results.txt", text), ("results.json", as_json(results, machine, settings)),
                          ("results.svg", report.as_svg(results, machine))):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(content)
    print(f"written: {folder}/results.txt, .json, .svg")


def as_json(results, machine, settings):
    """One object a case and server, each on a line of its own."""
    head = {"machine": machine, "quick": settings.quick, "confidence": pairs.CONFIDENCE, "plan": settings.plan._asdict()}
    rows = ",\n".join(json.dumps(row, ensure_ascii=False) for result in results for row in result["rows"])
    return json.dumps(head, ensure_ascii=False)[:-1] + ', "results": [\n' + rows + "\n]}\n"


if __name__ == "__main__":
    sys.exit(main())
