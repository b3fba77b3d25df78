"""What a node says of itself, in each of the ways in which one can ask."""

import os
import subprocess
import time

import dns.edns
import dns.message
import dns.rdatatype
import dns.reversename

from dns_client import exchange, make_query
from harness.background import Background


def nsid_query(name="worker1.tf.local."):
    return dns.message.make_query(name, "A", use_edns=0, options=[dns.edns.GenericOption(dns.edns.NSID, b"")])


def chaos_query():
    return make_query("id.server.", "TXT", rdclass="CH")


def pointer_query(address):
    return make_query(dns.reversename.from_address(address).to_text(), "PTR")


def name_in(response):
    """The name that a response to one of these has, without its last dot; None if it has none."""
    for option in response.options:
        if option.otype == dns.edns.NSID and option.data:
            return option.data.decode()
    for rrset in response.answer:
        if rrset.rdtype == dns.rdatatype.TXT:
            return rrset[0].strings[0].decode()
        if rrset.rdtype == dns.rdatatype.PTR:
            return rrset[0].target.to_text(omit_final_dot=True)
    return None


def queries(address):
    return {"NSID": nsid_query(), "CH TXT": chaos_query(), "PTR": pointer_query(address)}


def own_names(node, address):
    """Way -> the name that the node says is its own."""
    return {way: name_in(exchange(node, query)) for way, query in queries(address).items()}


def identity_file(state_directory):
    """What a shell gets of it; an empty dictionary if it says nothing."""
    path = os.path.join(state_directory, "identity")
    result = subprocess.run(["sh", "-c", 'set -a; . "$1"; env', "sh", path], capture_output=True, text=True, check=True,
                            env={"PATH": os.environ["PATH"]})
    return dict(line.split("=", 1) for line in result.stdout.splitlines() if line.startswith("IDETCD_"))


class Interrogator(Background):
    """Asks a node who it is, over and over, by every way, from another thread.

    `answers` are (way, name or None, when the question was sent, when the answer was there), by time.monotonic()."""

    def __init__(self, node, address):
        super().__init__()
        self.node, self.address = node, address
        self.answers = []

    def _run(self):
        questions = queries(self.address)
        while not self._end.wait(0.005):
            for way, query in questions.items():
                sent = time.monotonic()
                try:
                    name = name_in(exchange(self.node, query))
                except Exception:  # pylint: disable=broad-except
                    continue  # a node that is paused says nothing
                self.answers.append((way, name, sent, time.monotonic()))

    def claims(self, since=0.0, until=float("inf")):
        """What it said to questions that were sent from `since` on and answered by `until`: the names, None for none."""
        return {name for _, name, sent, received in list(self.answers) if sent >= since and received <= until}

    def ways(self, since=0.0):
        return {way for way, _, sent, _ in list(self.answers) if sent >= since}
