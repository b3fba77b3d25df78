"""A file system of its own that can be filled. Needs root."""

import os
import subprocess
import tempfile

from .processes import wait_until


class SmallDisk:
    def __init__(self):
        self._directory = tempfile.mkdtemp(prefix="idetcd-disk-")
        self.path = os.path.join(self._directory, "mount")
        self._ballast = os.path.join(self.path, "ballast")
        os.mkdir(self.path)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", self.path], check=True)

    def fill(self):
        with open(self._ballast, "ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass

    def make_room(self):
        os.unlink(self._ballast)

    def close(self):
        """REQUIRES: who writes there has ended."""
        wait_until(lambda: subprocess.run(["umount", self.path], check=False).returncode == 0, 20, "the disk to be left")
        os.rmdir(self.path)
        os.rmdir(self._directory)
