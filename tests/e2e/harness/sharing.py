"""How the workers of pytest-xdist share the tests: by what long_tests.txt says that they take."""

import os

from xdist.scheduler import LoadScheduling

# The output of pytest's `--durations 100 --durations-min 5`; a test that is not there is a short one.
_FILE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "long_tests.txt")


def long_tests():
    """Test -> seconds."""
    with open(_FILE, encoding="utf-8") as file:
        return {name.rstrip("\n"): float(seconds.rstrip("s")) for seconds, _, name in (line.split(None, 2) for line in file)}


class LongestFirst(LoadScheduling):
    """Gives out long tests one by one, the one that runs and the next, and then short ones in chunks, as xdist does: those of
    a module share its fixtures. REQUIRES: the long ones come first."""

    def __init__(self, config, log):
        super().__init__(config, log)
        self._long = long_tests()

    def _send_tests(self, node, num):
        if self.pending and self.collection[self.pending[0]] in self._long:
            num = max(0, 2 - len(self.node2pending[node]))
        super()._send_tests(node, num)
