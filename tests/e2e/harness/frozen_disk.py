"""A disk of its own that can be frozen: what writes there waits (state D), and so does all that waits for it. An etcd member
goes on answering from memory. Needs root, a loop device and ext4."""

import os
import shutil
import subprocess
import tempfile

from .processes import wait_until


class FreezableDisk:
    def __init__(self):
        shared_memory = "/dev/shm"
        self._directory = tempfile.mkdtemp(prefix="idetcd-disk-", dir=shared_memory if os.access(shared_memory, os.W_OK) else None)
        self._image = os.path.join(self._directory, "image")
        self.path = os.path.join(self._directory, "mount")
        os.mkdir(self.path)
        with open(self._image, "wb") as image:
            image.truncate(512 << 20)  # sparse; etcd allocates 64 MiB for each file of its log
        subprocess.run(["mkfs.ext4", "-q", "-F", self._image], check=True)
        subprocess.run(["mount", "-o", "loop", self._image, self.path], check=True)
        self.frozen = False

    def give_to(self, member):
        """REQUIRES: the member does not run."""
        shutil.rmtree(member.data)
        member.data = os.path.join(self.path, "data")
        os.mkdir(member.data, 0o700)

    def freeze(self):
        subprocess.run(["fsfreeze", "-f", self.path], check=True)
        self.frozen = True

    def thaw(self):
        if self.frozen:
            subprocess.run(["fsfreeze", "-u", self.path], check=True)
        self.frozen = False

    def close(self):
        """REQUIRES: the member has ended. thaw() before it is ended: it cannot die while it writes to a frozen disk. What was
        killed while it was frozen dies now."""
        self.thaw()
        wait_until(lambda: subprocess.run(["umount", self.path], check=False).returncode == 0, 20, "the disk to be left")
        shutil.rmtree(self._directory)
