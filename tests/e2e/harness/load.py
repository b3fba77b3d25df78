"""A steady load of queries over UDP, of which none may be lost: see load.c."""

import os
import struct
import subprocess

import dns.message
import dns.rcode

from .node import ROOT
from .processes import prepare_child

_EMPTY = 16  # NOERROR without a record


class Load:
    """Asks `rate` questions a second for `names` (type A) in turn, from `clients` sockets, while the `with` block lasts; then it waits
    for the answers that are still to come. Where `room` of them are still to come it asks no more."""

    def __init__(self, directory, port, names, rate, clients=16, host="127.0.0.1", room=20_000):
        self._program = os.path.join(directory, "load")
        subprocess.run(["gcc", "-O2", "-o", self._program, os.path.join(ROOT, "tests", "e2e", "harness", "load.c")], check=True)
        self._arguments = [host, str(port), str(rate), str(clients), str(room)]
        self._questions = [dns.message.make_query(name, "A", use_edns=False).to_wire()[2:] for name in names]
        self.asked = 0
        self.answered = 0
        self.seconds = 0.0
        self.longest = 0.0  # seconds from question to answer
        self.other = {}     # what the answers were that had no address -> how many

    @property
    def lost(self):
        return self.asked - self.answered

    def __str__(self):
        return f"{self.asked} asked in {self.seconds:.1f} s, {self.lost} lost, longest {self.longest:.3f} s, without an address: {self.other}"

    def __enter__(self):
        self._popen = subprocess.Popen([self._program, *self._arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       preexec_fn=prepare_child)
        for question in self._questions:
            self._popen.stdin.write(struct.pack("!H", len(question)) + question)
        self._popen.stdin.write(b"\0\0")
        self._popen.stdin.flush()
        return self

    def __exit__(self, *_):
        output, _ = self._popen.communicate()
        assert self._popen.returncode == 0
        self.asked, self.answered, sending, longest, *rcodes = map(int, output.split())
        self.seconds, self.longest = sending / 1e6, longest / 1e6
        self.other = {"nothing" if rcode == _EMPTY else dns.rcode.to_text(rcode): count
                      for rcode, count in enumerate(rcodes) if count and rcode != dns.rcode.NOERROR}
