"""tools/chaos: see its --help."""

import argparse
import os
import sys
import time

from harness import tool

from . import partitions, runs

_RUNS = {
    "ownership": (runs.run_ownership, "a name belongs to one node at a time"),
    "mirror": (runs.run_mirror, "every node's table is etcd's"),
    "partitions": (partitions.run_partitions, "a cluster is founded once, and a name belongs to one machine at a time"),
}


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="tools/chaos", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""A cluster under random faults, on this machine: etcd, and nodes that reach each of them over a
link of its own. Nodes are stopped, killed and ended by SIGTERM, and come back with a copy of another's state; links are cut,
black-holed in either direction and slowed down; etcd members are stopped and killed, and hear late of what the others agree
upon. Three runs, one after the other:

  ownership  Every node is asked every 20 ms which name it has. Fails if a node says "mine" of a name that another has,
             or that etcd has not given it at that moment; if the tokens of a name do not rise; if an on-claim program
             was run for anything else, or too early, or for a claim before the loss at the orderly end of the one before;
             if at rest the nodes do not have names within the limit, each its own, or a lease is left that is no node's.
             An operator deletes and overwrites names, revokes their leases, and compacts the history. The limit is the
             number of nodes or, by the seed, above.
  mirror     Writers put, delete, let leases end and write what is no record, and every 100 ms etcd is compacted; by the
             seed etcd is set back to a backup, once, as another cluster. Every 15 s all comes to rest. Fails if a name that is not touched is ever missing, if a counter goes back, if what
             ended longer than a lease ago is shown and not marked as stale, or if at rest any node answers anything but what `etcdctl get` shows.
  partitions Machines in networks of their own found a cluster, without an etcd (`peers`), and reach each other at random
             from before the founding on: in groups, not at all, one way only. After 20 partitions other machines begin anew.
             Three in nine wait for a name. Fails if two say "mine" of one name, in DNS or in `status`, or their files do, if
             an answer is outdated and not marked as stale, or if a second cluster is founded. About 20 partitions a
             minute. Needs root, and is left out without.""",
        epilog="Exit status: 0 if all held, 1 if not, 2 for wrong arguments, 130 after Ctrl-C. The server is IDETCD_BINARY, or\n"
               "build/release/idetcd. Every process that was started is ended, and nothing is left but what --keep asks for.")
    parser.add_argument("--minutes", type=float, default=1, metavar="N", help="faults for so long in each run (1)")
    parser.add_argument("--only", choices=sorted(_RUNS), help="one run")
    parser.add_argument("--nodes", type=int, metavar="N", help="how many, 2 to 200 (20 for ownership, 10 for mirror, 9 for partitions)")
    parser.add_argument("--members", type=int, default=3, choices=[1, 3], help="of etcd (3)")
    parser.add_argument("--lease", type=int, default=3, metavar="SECONDS", help="etcd gives no less than 2 here (3)")
    parser.add_argument("--stop-leaders", action="store_true",
                        help="stop etcd's leader for long too; etcd before 3.4.30 and 3.5.11 revokes living leases then")
    tool.add_common_options(parser, "the faults and the writes", "logs, events, and the intervals of ownership", "fault")
    options = parser.parse_args(arguments)
    if options.minutes <= 0 or options.lease < 2 or not 2 <= (options.nodes or 2) <= 200:
        parser.error("a number is out of range")
    if options.only == "partitions" and os.geteuid() != 0:
        parser.error("partitions needs root")
    tool.choose_seed(options)
    return options


def main(arguments):
    return tool.run("chaos", parse(arguments), run_all)


def run_all(options, directory):
    held = True
    for name in [options.only] if options.only else _RUNS:
        run, claim = _RUNS[name]
        if name == "partitions" and os.geteuid() != 0:
            print("\npartitions: left out, since it needs root")
            continue
        place = os.path.join(directory, name)
        os.mkdir(place)
        begin = time.monotonic()
        verdict = run(place, options.minutes * 60, options.seed, members=options.members, lease=options.lease,
                      stop_leaders=options.stop_leaders, out=None if options.quiet else sys.stdout,
                      **({"nodes": options.nodes} if options.nodes else {}))
        print(f"\n{name}: {claim}")
        for line in verdict.facts:
            print(f"  {line}")
        for problem in verdict.problems:
            print(f"  VIOLATED: {problem}")
        print(f"  {'held' if not verdict.problems else 'VIOLATED'}, in {time.monotonic() - begin:.0f} s\n", flush=True)
        held = held and not verdict.problems
    return 0 if held else 1
