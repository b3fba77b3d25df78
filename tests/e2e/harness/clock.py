"""The clocks of a node's process, which the test sets: see clock.c."""

import os
import struct
import subprocess

from .node import ROOT


class Clocks:
    """`env` is for Node.launch()."""

    def __init__(self, directory):
        library = os.path.join(directory, "clock.so")
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, os.path.join(ROOT, "tests", "e2e", "harness", "clock.c"),
                        "-ldl"], check=True)
        path = os.path.join(directory, "clock")
        self._file = open(path, "w+b", buffering=0)
        self.env = {"LD_PRELOAD": library, "IDETCD_TEST_CLOCK": path}
        self.set()

    def set(self, wall=0, boot=0):
        """Seconds that CLOCK_REALTIME and CLOCK_BOOTTIME are ahead of the kernel's."""
        self._file.seek(0)
        self._file.write(struct.pack("dd", wall, boot))

    def close(self):
        self._file.close()
