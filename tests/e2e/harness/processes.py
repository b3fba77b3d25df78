"""Child processes that never outlive us, and waiting for conditions."""

import ctypes
import os
import signal
import subprocess
import time


def _measured_factor():
    """How much of the processor others take from us: wall time a second of processor time, the most of three samples; 1 on a
    machine of our own."""
    factors = []
    for _ in range(3):
        begin, used = time.monotonic(), time.thread_time()
        while time.thread_time() - used < 0.1:
            pass
        factors.append((time.monotonic() - begin) / 0.1)
    factor = max(factors)
    return 1.0 if factor < 1.3 else min(factor, 10.0)


# Everything that a sanitizer or a slow machine stretches is multiplied by this. pytest's workers have it from their parent.
# Others may begin after the measurement: a bound that an event ends, or one of several tries, needs it less.
TIME_FACTOR = float(os.environ.setdefault("IDETCD_TEST_TIME_FACTOR", f"{_measured_factor():.1f}"))
# An awaited event may take this much longer: the limit only bounds a failure, and a machine may be busy for a while.
_PATIENCE = 3

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


def prepare_child():
    """In the child: it dies with its parent, and takes SIGINT and SIGHUP as from a terminal. Who starts us in the background
    of a shell has the one ignored, nohup(1) the other, and so would all that we start."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def wait_until(condition, timeout, what, interval=0.01):
    """Polls until condition() is truthy and returns its value; AssertionError that names `what` otherwise.

    `what` may be a function, called only on failure, so that it can say how things stood at the end."""
    timeout *= _PATIENCE * TIME_FACTOR
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what() if callable(what) else what}")
        time.sleep(interval)


def assert_takes_less(limit, attempt):
    """`attempt`, which is given its number and returns how long it took, takes less than `limit` seconds in one of three
    attempts: a busy machine may be late with some."""
    limit *= TIME_FACTOR
    took = []
    while not took or took[-1] >= limit and len(took) < 3:
        took.append(attempt(len(took)))
    assert took[-1] < limit, took


def ended(pid):
    """Whether a process that need not be our child runs no more. What it leaves until its parent asks for its exit code does
    not count: for orphans that parent is the machine's init, which takes its time."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


class Process:
    """One child: output in files, ended by its pid, killed by the kernel when the thread that started it dies.

    It has a process group of its own: Ctrl-C reaches us alone, and we end our children in order."""

    def __init__(self, name, directory):
        self.name = name
        self.directory = directory
        self.out_path = os.path.join(directory, f"{name}.out")
        self.err_path = os.path.join(directory, f"{name}.err")
        self._popen = None

    def spawn(self, argv, env=None, cwd=None, stdin_text=None, user=None, prefix=(), pass_fds=()):
        assert not self.running(), f"{self.name} runs already"
        stdin = subprocess.DEVNULL
        if stdin_text is not None:
            stdin = open(os.path.join(self.directory, f"{self.name}.in"), "w+b")
            stdin.write(stdin_text.encode())
            stdin.seek(0)
        with open(self.out_path, "ab") as out, open(self.err_path, "ab") as err:
            self._popen = subprocess.Popen(
                [*prefix, *argv], stdin=stdin, stdout=out, stderr=err, env={**os.environ, **(env or {})}, cwd=cwd,
                user=user, pass_fds=pass_fds, process_group=0, preexec_fn=prepare_child)
        if stdin is not subprocess.DEVNULL:
            stdin.close()
        return self

    @property
    def pid(self):
        return self._popen.pid

    def children(self):
        """The process IDs of those that its main thread has started."""
        with open(f"/proc/{self.pid}/task/{self.pid}/children", encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]

    def running(self):
        return self._popen is not None and self._popen.poll() is None

    def exit_code(self, timeout):
        """Waits for the end. Negative: ended by that signal."""
        timeout *= _PATIENCE * TIME_FACTOR
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} has not ended within {timeout:g} s\n{self.logs()}") from None

    def handles(self, number):
        """Whether it runs and handles the signal, or will. In its first moments, before any code of its own, no process does."""
        if not self.running():
            return False
        with open(f"/proc/{self.pid}/status", encoding="ascii") as status:
            masks = [int(line.split()[1], 16) for line in status if line.startswith(("SigBlk:", "SigCgt:"))]
        return any(mask >> (number - 1) & 1 for mask in masks)

    def signal(self, number):
        self._popen.send_signal(number)

    def signal_all(self, number):
        """It and what it has started. REQUIRES: it runs."""
        os.killpg(self.pid, number)

    def kill(self):
        if self.running():
            self._popen.kill()
        if self._popen is not None:
            self._popen.wait()

    def pause(self):
        self._popen.send_signal(signal.SIGSTOP)
        # The signal is delivered to each thread on its own time; the state says when the process has really stopped.
        wait_until(lambda: self.state() == "T", 5, f"{self.name} to stop")

    def resume(self):
        self._popen.send_signal(signal.SIGCONT)

    def state(self):
        with open(f"/proc/{self.pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0]

    def out(self):
        return _read(self.out_path)

    def err(self):
        return _read(self.err_path)

    def logs(self, tail=60):
        text = []
        for title, content in (("stdout", self.out()), ("stderr", self.err())):
            lines = content.splitlines()
            if len(lines) > tail:
                lines = [f"... {len(lines) - tail} lines ..."] + lines[-tail:]
            text += [f"--- {self.name} {title}", *lines]
        return "\n".join(text)


def _read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""
