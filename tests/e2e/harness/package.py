"""The packages of the build directory."""

import glob
import os
import subprocess

from .node import ROOT


def made_package(place, kind="deb"):
    """The path of the .deb, or .rpm, which is made in the directory `place`."""
    command = ["cpack", "--config", os.path.join(ROOT, "build", "release", "CPackConfig.cmake"), "-G", kind.upper(), "-B", place]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300,
                            env={**os.environ, "HOME": place})  # rpm makes a database there
    assert result.returncode == 0, result.stdout + result.stderr
    [path] = glob.glob(os.path.join(place, f"*.{kind}"))
    return path
