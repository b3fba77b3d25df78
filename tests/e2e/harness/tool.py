"""What the commands have in common that try the server out."""

import os
import random
import signal
import sys
import tempfile

from .node import binary


def add_common_options(parser, seed, keep, quiet):
    """--seed, --keep and --quiet, with what they mean here."""
    parser.add_argument("--seed", type=int, metavar="S", help=f"what decides {seed} (random, and printed)")
    parser.add_argument("--keep", metavar="DIRECTORY", help=f"a new directory for {keep}")
    parser.add_argument("--quiet", action="store_true", help=f"no line for each {quiet}")


def choose_seed(options):
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(2 ** 32)


def run(name, options, work):
    """The exit status. work(options, directory) is given a directory that is removed afterwards, or that of --keep; it may be
    ended by a signal, and what it has started has to end when its stack unwinds."""
    if not os.access(binary(), os.X_OK):
        print(f"tools/{name}: {binary()} is not built: run tools/build release", file=sys.stderr)
        return 1
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        print(f"seed {options.seed}", flush=True)
        if options.keep:
            os.makedirs(options.keep)
            return work(options, os.path.abspath(options.keep))
        with tempfile.TemporaryDirectory(prefix=f"idetcd-{name}-") as directory:
            return work(options, directory)
    except KeyboardInterrupt:
        print()
        return 130
    except OSError as error:
        print(f"tools/{name}: {error}", file=sys.stderr)
        return 1
