"""A part of a soak that is a process of its own, so that it neither disturbs nor is disturbed by the others.

Such a program is a module of this package. It is given its options as JSON, prints lines of JSON, and ends when its
standard input does."""

import json
import os
import select
import subprocess
import sys
import threading

from harness.node import ROOT
from harness.processes import TIME_FACTOR, prepare_child


class Program:
    """Runs the module `soak.NAME`. `receive(line)` is called with each decoded line, in a thread of its own."""

    def __init__(self, name, directory, options, receive):
        self.name = name
        with open(os.path.join(directory, f"{name}.err"), "ab") as log:
            self._popen = subprocess.Popen(
                [sys.executable, "-B", "-m", f"soak.{name}", json.dumps(options)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=log, env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "tests", "e2e")}, process_group=0,
                preexec_fn=prepare_child)
        self._reader = threading.Thread(target=self._read, args=(receive,), daemon=True)
        self._reader.start()

    def _read(self, receive):
        for line in self._popen.stdout:
            receive(json.loads(line))

    def running(self):
        return self._popen.poll() is None

    def finish(self, timeout):
        """Lets it end, and returns its exit status when everything that it printed was received."""
        self._popen.stdin.close()
        try:
            code = self._popen.wait(timeout * TIME_FACTOR)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} has not ended within {timeout * TIME_FACTOR:g} s") from None
        self._reader.join()
        return code

    def close(self):
        if self.running():
            self._popen.kill()
            self._popen.wait()
        self._reader.join()
        for pipe in (self._popen.stdin, self._popen.stdout):
            pipe.close()


def options():
    return json.loads(sys.argv[1])


def report(line):
    print(json.dumps(line), flush=True)


def ended():
    """Whether the one who started this program wants it to end."""
    return bool(select.select([sys.stdin], [], [], 0)[0])
