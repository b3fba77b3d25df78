"""The Debian package of the build directory."""

import glob
import os
import subprocess

from .node import ROOT


def made_package(place):
    """The path of the .deb, which is made in the directory `place`."""
    command = ["cpack", "--config", os.path.join(ROOT, "build", "release", "CPackConfig.cmake"), "-G", "DEB", "-B", place]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    [path] = glob.glob(os.path.join(place, "*.deb"))
    return path
