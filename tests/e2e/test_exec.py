"""`idetcd exec --on-change`: a job that lives as long as its node's name, and is told of other members."""

import os
import signal

import pytest

from corefiles import corefile
from dns_client import wait_gone, wait_resolves
from harness.node import binary
from harness.processes import wait_until
from test_cli import Terminal, background, one_line, run  # noqa: F401, a fixture  pylint: disable=unused-import

SETTLE = ("--settle", "200ms")
ADDRESS = ["address 192.0.2.7"]
LIVES = "while :; do sleep 0.05; done"
TELLS = f"trap 'echo told' HUP; echo up $IDETCD_NAME; {LIVES}"


def lines(job):
    return job.out().splitlines()


def wait_lines(job, expected):
    wait_until(lambda: lines(job) == expected, 20, lambda: f"{expected}; there is {job.out()!r}, {job.err()!r}")


def is_there(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def node(etcd, nodes):
    started = nodes.start(corefile(etcd.endpoint, options=ADDRESS))
    wait_resolves([started], "worker1.tf.local.", "192.0.2.7")
    return started


def start_second(etcd, nodes, seen_by):
    second = nodes.start(corefile(etcd.endpoint, options=ADDRESS))
    wait_resolves([seen_by], "worker2.tf.local.", "192.0.2.7")
    return second


def test_a_job_is_told_by_a_signal(etcd, nodes, node, background):
    job = background(node, "exec", "--on-change", "signal:HUP", *SETTLE, "--", "sh", "-c", TELLS)
    wait_lines(job, ["up worker1.tf.local."])
    second = start_second(etcd, nodes, node)
    wait_lines(job, ["up worker1.tf.local.", "told"])
    second.terminate()
    wait_gone([node], "worker2.tf.local.")
    wait_lines(job, ["up worker1.tf.local.", "told", "told"])
    job.signal(signal.SIGTERM)
    assert job.exit_code(10) == 128 + signal.SIGTERM


def test_a_job_is_started_anew(etcd, nodes, node, background):
    """Also one that does not want to end, with what it has started elsewhere."""
    text = f"trap '' TERM; setsid sh -c 'trap \"\" TERM; echo child $$; {LIVES}' & echo up; {LIVES}"
    job = background(node, "exec", "--on-change=restart", *SETTLE, "--", "sh", "-c", text)
    wait_until(lambda: len(lines(job)) == 2, 10, job.out)
    [child] = [int(line.split()[1]) for line in lines(job) if line.startswith("child")]
    start_second(etcd, nodes, node)
    wait_until(lambda: lines(job).count("up") == 2 and len(lines(job)) == 4, 40, job.out)
    assert not is_there(child)
    job.signal(signal.SIGTERM)  # passed on, and ignored
    job.kill()
    for line in lines(job):
        if line.startswith("child") and is_there(int(line.split()[1])):
            os.kill(int(line.split()[1]), signal.SIGKILL)  # in a session of its own


def test_a_job_need_not_be_told(etcd, nodes, node, background):
    ignoring = background(node, "exec", "--on-change", "ignore", *SETTLE, "--", "sh", "-c", TELLS)
    told = background(node, "exec", "--on-change", "signal:SIGHUP", *SETTLE, "--", "sh", "-c", TELLS)
    for job in (ignoring, told):
        wait_lines(job, ["up worker1.tf.local."])
    start_second(etcd, nodes, node)
    wait_lines(told, ["up worker1.tf.local.", "told"])
    assert lines(ignoring) == ["up worker1.tf.local."]


def test_a_lost_name_ends_the_job(node, background):
    job = background(node, "exec", "--on-change=ignore", "--", "sh", "-c", f"echo $$; {LIVES}")
    wait_until(lambda: lines(job), 10, job.err)
    # Whoever releases the name of a living node: it takes the same one again, as another holder.
    assert run(node, "release", "worker1.tf.local", "--yes", "worker1.tf.local")[0] == 0
    assert job.exit_code(20) == 75
    assert "worker1.tf.local" in one_line(job.err()) and "lost" in job.err()
    assert not is_there(int(lines(job)[0]))


def test_exit_codes_are_the_jobs(node):
    for text, code in (("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 128 + signal.SIGKILL)):
        assert run(node, "exec", "--on-change=ignore", "--", "sh", "-c", text) == (code, "", "")
    code, _, err = run(node, "exec", "--on-change=ignore", "--", "no-such-program")
    assert code == 127 and "no-such-program" in one_line(err)
    for wrong in ("signal:", "signal:NONE", "sometimes"):
        code, _, err = run(node, "exec", "--on-change", wrong, "--", "true")
        assert code == 2 and "--on-change" in err
    assert run(node, "exec", "--settle=1s", "--", "true")[0] == 2
    code, _, err = run(node, "exec", "--barrier=1", "--members=3", "--", "true")
    assert code == 2 and "--barrier and --members" in one_line(err)


def test_a_barrier_waits_for_members(etcd, nodes, node, background):
    job = background(node, "exec", "--barrier", "2", "--on-change=ignore", "--", "echo", "up")
    assert run(node, "exec", "--barrier=2", "--timeout=0", "--", "true")[0] == 1
    assert lines(job) == []
    start_second(etcd, nodes, node)
    assert job.exit_code(20) == 0 and lines(job) == ["up"]


def test_a_server_that_starts_anew_does_not_end_the_job(etcd, nodes, directory, background):
    text = corefile(etcd.endpoint, options=[*ADDRESS, f"state {os.path.join(directory, 'state')}"])
    node = nodes.start(text)
    wait_resolves([node], "worker1.tf.local.", "192.0.2.7")
    job = background(node, "exec", "--on-change=signal:USR1", *SETTLE, "--", "sh", "-c", f"trap 'echo ended' TERM; trap 'echo told' HUP; echo up; {LIVES}")
    wait_lines(job, ["up"])
    node.kill()
    node.start()
    wait_resolves([node], "worker1.tf.local.", "192.0.2.7")
    job.signal(signal.SIGHUP)  # passed on
    wait_lines(job, ["up", "told"])


def test_no_job_outlives_its_supervisor(node, background):
    job = background(node, "exec", "--on-change=ignore", "--", "sh", "-c", f"echo $$; {LIVES}")
    wait_until(lambda: lines(job), 10, job.err)
    job.kill()
    wait_until(lambda: not is_there(int(lines(job)[0])), 10, "the job to be gone")


def test_a_spare_takes_the_name_of_the_dead(etcd, nodes, background):
    text = corefile(etcd.endpoint, limit=1, options=ADDRESS)
    first = nodes.start(text)
    wait_resolves([first], "worker1.tf.local.", "192.0.2.7")
    spare = nodes.start(text)
    job = background(spare, "exec", "--on-change=ignore", "--", "sh", "-c", "echo $IDETCD_ID $IDETCD_UUID")
    first.kill()
    assert job.exit_code(40) == 0
    assert lines(job)[0].startswith("1 ")


def test_children_that_were_there_before_are_left_alone(etcd, nodes, node, directory, background):
    """As those of a container's first process."""
    # The shell becomes the subcommand: its child becomes one of that.
    text = f'sleep 1000 & echo other $! >{directory}/other; exec "$0" exec --on-change=restart --settle 200ms -- sh -c "echo up; {LIVES}"'
    job = background(node, "exec", "--", "sh", "-c", text, binary())
    wait_until(lambda: lines(job) == ["up"], 10, job.err)
    with open(f"{directory}/other", encoding="ascii") as file:
        other = int(file.read().split()[1])
    start_second(etcd, nodes, node)
    wait_until(lambda: lines(job) == ["up", "up"], 20, job.out)
    assert is_there(other)
    os.kill(other, signal.SIGKILL)


def test_a_shell_at_a_terminal_keeps_it(node):
    """Ctrl-Z and Ctrl-C reach the job, and then the shell goes on; a job in the background takes nothing."""
    exec_command = f"{binary()} exec --on-change=ignore --"
    with Terminal(node, "exec", "--", "bash", "--norc", "--noprofile", "-i") as terminal:
        terminal.type(f"{exec_command} sh -c 'echo up$((1+1)); exec sleep 1000'\n")
        terminal.wait_for("up2")
        terminal.type("\x1a")
        terminal.wait_for("Stopped")
        terminal.type("echo shell$((1+1)); fg\n")
        terminal.wait_for("shell2")
        terminal.wait_for("exec sleep 1000", times=3)  # typed, stopped, and in the foreground again
        terminal.type("\x03")
        terminal.type("echo code$?\n")
        terminal.wait_for("code130")
        terminal.type(f"{exec_command} sh -c 'echo in$((1+1))' & wait; echo alone$((1+1))\n")
        terminal.wait_for("in2")
        terminal.wait_for("alone2")
        terminal.type("exit 3\n")
        assert terminal.end() == 3
