"""The systemd unit of the server, and its restrictions without a systemd that runs."""

import ctypes
import os
import shlex
import subprocess

from .node import ROOT

PATH = os.path.join(ROOT, "src", "app", "idetcd.service")
_EPERM = 1
_ACT_ALLOW, _ACT_EPERM = 0x7FFF0000, 0x00050000 | _EPERM


def text():
    with open(PATH, encoding="ascii") as file:
        return file.read()


def options():
    """Name -> its values, in their order."""
    found = {}
    for line in text().splitlines():
        name, equals, value = line.partition("=")
        if equals:
            found.setdefault(name, []).append(value)
    return found


def system_calls():
    """The names that SystemCallFilter= comes to, as systemd.exec(5) defines it: the first line is the list, "~" takes away."""
    allowed = _expanded("@default")
    for line in options()["SystemCallFilter"]:
        names = set().union(*map(_expanded, line.lstrip("~").split()))
        allowed = allowed - names if line.startswith("~") else allowed | names
    return allowed


def _expanded(name):
    if not name.startswith("@"):
        return {name}
    output = subprocess.run(["systemd-analyze", "syscall-filter", name], check=True, capture_output=True, text=True).stdout
    words = [line.strip() for line in output.splitlines()[1:] if not line.strip().startswith("#")]
    return set().union(*map(_expanded, filter(None, words)))


def filter_system_calls(names):
    """For the calling process, from now on: the filter that systemd would load before the program."""
    seccomp = ctypes.CDLL("libseccomp.so.2")
    seccomp.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(_ACT_EPERM)))
    for name in names:
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            assert seccomp.seccomp_rule_add(context, ctypes.c_uint32(_ACT_ALLOW), number, 0) == 0, name
    assert seccomp.seccomp_load(context) == 0


def filtered(*more):
    """Before a command line: only the unit's system calls are allowed to it, and `more`, as by a drop-in."""
    return ["/usr/bin/python3", "-B", "-c",
            "import os, sys; sys.path.insert(0, sys.argv[1]); from harness import unit_file\n"
            "unit_file.filter_system_calls(sys.argv[2].split(',')); os.execvp(sys.argv[3], sys.argv[3:])",
            os.path.join(ROOT, "tests", "e2e"), ",".join(sorted(system_calls().union(more)))]


def prefix(state):
    """Before a command line: the file system is read-only but for `state`, the user is nobody, with the unit's capabilities
    and no new privileges. Needs root."""
    quoted = shlex.quote(state)
    [capability] = options()["AmbientCapabilities"]
    name = capability.removeprefix("CAP_").lower()
    mounts = (f"mount --bind {quoted} {quoted} && mount -o remount,bind,ro / && "
              "for m in /tmp /dev/shm; do mountpoint -q $m && mount -o remount,bind,ro $m; done; ")
    rights = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs", "--bounding-set",
              f"-all,+{name}", "--inh-caps", f"-all,+{name}", "--ambient-caps", f"+{name}"]
    return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", f'{mounts} exec "$@"', "sh", *rights, "--"]
