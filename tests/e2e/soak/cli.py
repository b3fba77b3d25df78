"""tools/soak: see its --help."""

import argparse
import os
import sys
import time

from harness import tool

from . import judge, runs
from .rig import OTHERS

_DEFAULTS = judge.Bounds()


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="tools/soak", formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"""One node under everything at once, on this machine, with a real etcd and real upstreams:

  load      queries over UDP and TCP for names of the cluster, for cached names and for new ones; each answer is checked
  churn     names put into etcd and deleted, and {OTHERS} other nodes that come, end and are killed
  reloads   SIGHUP and SIGUSR1 with a changed Corefile, and with broken ones
  faults    etcd stopped and killed, the link to it cut, held and slow; upstreams stopped and killed, one at a time or both
  hostile   mutated packets, odd EDNS options and cookies, floods of random names, TCP connections that stall, drip, never
            read, half-close and reset; and an upstream that is silent, late, cut short, garbled, forged

Every second the node's memory, descriptors and threads are read from /proc. It has held if

  - no answer was wrong, and no name of the cluster was missing or took 2 s, but for waiting for a processor
  - at most {_DEFAULTS.unanswered:.1%} of all good queries got no answer, and at most {_DEFAULTS.failed:.1%} of those for upstreams
    failed while one of these could be reached and the node did not wait for a processor
  - over the second half of the time memory does not grow by more than --max-slope: the lower end of the 95 % interval of the
    Theil-Sen slope of what the process has allocated, so that single steps do not count
  - at rest no descriptor is open that was not open before
  - each reload had its effect, and none that is broken had any
  - the process never ended, ends well on SIGTERM, and has logged no failed assertion and no report of a sanitizer""",
        epilog="It runs as root. Exit status: 0 if all held, 1 if not, 2 for wrong arguments, 130 after Ctrl-C. The server is IDETCD_BINARY, or\n"
               "build/release/idetcd. Every process that was started is ended, and nothing is left but what --keep asks for.")
    parser.add_argument("--minutes", type=float, default=1, metavar="N", help="so long, 0.5 at least (1)")
    parser.add_argument("--rate", type=int, default=runs.RATE, metavar="N",
                        help=f"good queries a second, 10 to 20000 ({runs.RATE})")
    parser.add_argument("--max-slope", type=float, metavar="KIB", help="KiB a minute (what "
                        f"{_DEFAULTS.bytes_per_query:.0f} bytes a query come to, but {_DEFAULTS.growth_kib:.0f} KiB in all at most)")
    parser.add_argument("--max-unanswered", type=float, default=100 * _DEFAULTS.unanswered, metavar="PERCENT",
                        help=f"of all good queries ({100 * _DEFAULTS.unanswered:g})")
    tool.add_common_options(parser, "the names, the faults and the packets", "logs, events, and what was measured", "event")
    options = parser.parse_args(arguments)
    if options.minutes < 0.5 or not 10 <= options.rate <= 20000:
        parser.error("a number is out of range")
    tool.choose_seed(options)
    return options


def main(arguments):
    options = parse(arguments)
    if os.geteuid() != 0:
        print("tools/soak: only root may read what the node's process holds, since it keeps its keys out of core dumps",
              file=sys.stderr)
        return 1
    return tool.run("soak", options, soak)


def soak(options, directory):
    bounds = judge.Bounds(kib_per_minute=options.max_slope, unanswered=options.max_unanswered / 100)
    begin = time.monotonic()
    verdict = runs.run(directory, options.minutes * 60, options.seed, options.rate, bounds,
                       out=None if options.quiet else sys.stdout)
    show(verdict)
    print(f"{'VIOLATED' if verdict.problems else 'held'}, in {time.monotonic() - begin:.0f} s", flush=True)
    return 1 if verdict.problems else 0


def show(verdict):
    print()
    for line in verdict.table:
        print(line)
    print()
    for line in verdict.facts:
        print(f"  {line}")
    for problem in verdict.problems:
        print(f"  VIOLATED: {problem}")
