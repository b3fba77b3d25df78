"""Directories that stand for the root of a small machine, with programs of this one."""

import os
import re
import shutil
import subprocess


def copy(root, path):
    """This machine's file, and what it links to, at the same place below `root`."""
    target = os.path.join(root, path.lstrip("/"))
    if not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy2(path, target)


def copy_programs(root, *names):
    """With the libraries that they load."""
    for name in names:
        path = shutil.which(name)
        copy(root, path)
        for library in re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", path], check=False, capture_output=True, text=True).stdout):
            copy(root, library)
