"""The server of an earlier commit, for tests of an upgrade: taken from this repository's own history and built once into
build/earlier. Run as a program it builds and prints the path."""

import fcntl
import os
import shutil
import subprocess
import sys

if __package__:
    from .node import ROOT
else:
    ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

# The last one that kept no token in its value, and neither a beat nor incarnations below /idetcd/.
COMMIT = "df6bbd40d13e20db17ab9e1c8e102a71ffcac08d"


def binary(commit=COMMIT):
    """The path of that commit's server. The first call takes as long as any build; AssertionError if that fails."""
    place = os.path.join(ROOT, "build", "earlier", commit)
    built = os.path.join(place, "build", "idetcd")
    done = os.path.join(place, "idetcd")
    os.makedirs(place, exist_ok=True)
    with open(os.path.join(place, "lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(done):
            source = os.path.join(place, "source")
            _unpack(commit, source)
            # It is tested, not measured: without optimisation and in units of whole folders, but for those whose names clash.
            with open(os.path.join(source, "CMakeLists.txt"), "a", encoding="ascii") as project:
                project.write("set_target_properties(idetcd_cluster idetcd_proto PROPERTIES UNITY_BUILD OFF)\n")
            _run("cmake", "-S", source, "-B", os.path.join(place, "build"), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=None", "-DBUILD_TESTING=OFF",
                 "-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=0", "-DCMAKE_CXX_FLAGS=-Wno-subobject-linkage")
            _run("cmake", "--build", os.path.join(place, "build"), "--target", "idetcd", "--parallel", str(os.cpu_count()))
            os.rename(built, done)
    return done


def _unpack(commit, source):
    # The checkout may belong to another user than the tests run as.
    git = ["git", "-c", f"safe.directory={ROOT}", "-C", ROOT]
    if not shutil.which("git") or subprocess.run([*git, "cat-file", "-e", f"{commit}^{{commit}}"], check=False,
                                                 capture_output=True).returncode:
        raise AssertionError(f"the upgrade is tested with a server built from commit {commit}, and this checkout has no such "
                             "commit (or git is missing): clone the whole history (git fetch --unshallow)")
    shutil.rmtree(source, ignore_errors=True)
    os.makedirs(source)
    archive = f"{source}.tar"
    _run(*git, "archive", "-o", archive, commit)
    _run("tar", "-xf", archive, "-C", source)
    os.remove(archive)


def _run(*command):
    result = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert result.returncode == 0, f"{' '.join(command)}:\n{result.stdout[-10000:]}"


if __name__ == "__main__":
    try:
        print(binary())
    except AssertionError as failure:
        sys.exit(str(failure))
