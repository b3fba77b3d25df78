"""What a node publishes on its machine: the program of `on-claim`, and the file that a shell can source."""

import glob
import os
import re
import signal
import subprocess
import time

import pytest

from corefiles import corefile
from dns_client import answers, pointer, said_name, wait_says
from harness.frozen_disk import FreezableDisk
from harness.processes import TIME_FACTOR, wait_until
from harness.state import State, contents
from test_identity import rewrite

WORKER1, WORKER2 = "worker1.tf.local.", "worker2.tf.local."
UUID = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


@pytest.fixture
def state(directory):
    return State(f"{directory}/state")


@pytest.fixture
def script(directory):
    """A function that makes a program of shell lines; $OUT is a file of its own in the directory."""
    def make(*lines, name="hook"):
        path = os.path.join(directory, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(["#!/bin/sh", f"OUT={directory}/{name}.out", *lines, ""]))
        os.chmod(path, 0o755)
        return path

    make.out = lambda name="hook": contents(os.path.join(directory, f"{name}.out"))
    return make


def started(etcd, nodes, command, *options, lease=20, launch=False, **more):
    node = nodes.make(corefile(etcd.endpoint, lease=lease, options=[
        "address 192.0.2.7 2001:db8::7", f"on-claim {command}", *options], **more))
    if not launch:
        node.start()
        wait_says(node, WORKER1)
    return node


def wait_contains(script, text, name="hook"):
    wait_until(lambda: text in script.out(name), 10, lambda: f"{text!r} in {script.out(name)!r}")


def gone(pid):
    """It does not run; the process that inherits it may not have waited for it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


# --- on-claim ---

def test_the_environment_and_the_order_of_events(etcd, nodes, script):
    """With arguments as they stand in the Corefile, and the server's own environment."""
    hook = script('echo "$# $2|$IDETCD_EVENT $IDETCD_NAME $IDETCD_ID $IDETCD_TOKEN $IDETCD_UUID $IDETCD_IPV4 $IDETCD_IPV6 $HERE $IDETCD_OLD" >> $OUT')
    node = started(etcd, nodes, f'{hook} one "two words" ""', launch=True)
    node.start(env={"HERE": "here", "IDETCD_OLD": "of another", "IDETCD_EVENT": "nonsense"})
    wait_says(node, WORKER1)
    pair, uuid = etcd.pairs()[WORKER1.encode()], etcd.names()[WORKER1]["id"]
    expected = [f"3 two words|claim {WORKER1} 1 {pair['create_revision']} {uuid} 192.0.2.7 2001:db8::7 here "]
    wait_until(lambda: script.out().splitlines() == expected, 10, script.out)

    etcd.put(WORKER1, '{"ipv4":"198.51.100.1"}')
    wait_says(node, WORKER2)
    second = etcd.pairs()[WORKER2.encode()]["create_revision"]
    assert second > pair["create_revision"]
    expected += [expected[0].replace("claim", "loss"),
                 f"3 two words|claim {WORKER2} 2 {second} {uuid} 192.0.2.7 2001:db8::7 here "]
    wait_until(lambda: script.out().splitlines() == expected, 10, script.out)
    assert node.terminate() == 0
    expected.append(expected[-1].replace("claim", "loss"))
    assert script.out().splitlines() == expected, "the loss is reported before the process ends"
    assert WORKER2 not in etcd.names()


def test_a_renewal_is_no_event_and_the_deadline_is(etcd, nodes, script, state):
    hook = script("echo $IDETCD_EVENT $IDETCD_NAME $IDETCD_TOKEN >> $OUT")
    node = started(etcd, nodes, hook, state.option, lease=5)
    wait_contains(script, "claim")
    identity = state.file("env")
    wait_until(lambda: contents(identity), 5, "the identity")
    first = script.out()
    before = etcd.pairs()[WORKER1.encode()]
    time.sleep(6 * TIME_FACTOR)  # what must not happen has no event to wait for
    assert script.out() == first and etcd.pairs()[WORKER1.encode()] == before
    etcd.pause()
    wait_contains(script, "loss")
    # A reader of the file finds nothing after that, and DNS says the same.
    assert contents(identity) == "" and said_name(node) is None and pointer(node, "192.0.2.7") == "REFUSED"
    assert answers(node, WORKER1) == ["192.0.2.7"], "as last known"
    etcd.resume()
    wait_until(lambda: script.out().count("claim") == 2, 20, lambda: f"{script.out()}\n{node.logs()}")
    wait_until(lambda: contents(identity), 5, "the identity")
    assert [line.split()[0] for line in script.out().splitlines()] == ["claim", "loss", "claim"]


def test_an_observer_calls_nobody(etcd, nodes, script, state):
    node = started(etcd, nodes, script("echo $IDETCD_EVENT >> $OUT"), "observe", state.option, launch=True).start()
    etcd.put("db.tf.local.", '{"ipv4":"198.51.100.1"}')
    wait_until(lambda: answers(node, "db.tf.local.") == ["198.51.100.1"], 5, "the observer to see it")
    assert node.terminate() == 0
    assert script.out() == "" and contents(state.file("env")) == ""


@pytest.mark.parametrize("command, complaint", [
    ("{hook}", "ended with status 3"),
    ("{directory}/no-such-program", "{directory}/no-such-program cannot be run: No such file or directory"),
    ("no-such-program-in-the-path", "no-such-program-in-the-path cannot be run"),
    ("{directory}", "{directory} cannot be run: Permission denied"),
    ("{killed}", "was ended by signal 15"),
], ids=["fails", "is missing", "is missing in the path", "is a directory", "dies"])
def test_a_program_that_fails_is_logged_and_no_more(etcd, nodes, script, directory, command, complaint):
    places = {"hook": script("exit 3"), "killed": script("kill -TERM $$", name="killed"), "directory": directory}
    node = started(etcd, nodes, command.format(**places))
    wait_until(lambda: complaint.format(**places) in node.logs(), 5, node.logs)
    node.wait_logged("on-claim")
    assert answers(node, WORKER1) == ["192.0.2.7"]
    assert node.terminate() == 0
    assert etcd.pairs() == {}
    wait_until(lambda: node.logs().count(complaint.format(**places)) == 2, 5, lambda: f"the loss too: {node.logs()}")


def test_a_program_that_hangs_holds_nothing_up_and_is_killed_at_the_end(etcd, nodes, script):
    hook = script("trap '' TERM INT HUP", "sleep 600 &", "echo $$ $! >> $OUT", "wait")
    node = started(etcd, nodes, hook)
    wait_contains(script, "\n")
    pids = script.out().split()
    etcd.delete(WORKER1)
    wait_until(lambda: node.owned_name(etcd) == WORKER1 and said_name(node) == WORKER1, 10, "the name to be claimed again")
    assert answers(node, WORKER1) == ["192.0.2.7"]
    assert not any(gone(pid) for pid in pids)
    assert node.terminate() == 0
    assert etcd.pairs() == {}
    wait_until(lambda: all(gone(pid) for pid in pids), 5, "the program and what it has started to be gone")
    assert script.out().count("\n") <= 2, "of the events that waited at most one more was begun"


def test_old_pairs_are_left_out_and_the_truth_comes_next(etcd, nodes, script, directory):
    """While a program runs the name is lost and claimed again and again."""
    hook = script("echo $IDETCD_EVENT $IDETCD_TOKEN $IDETCD_SEQUENCE >> $OUT", f"while ! test -e {directory}/go; do sleep 0.05; done")
    node = started(etcd, nodes, hook)
    wait_contains(script, "claim")
    first = token = etcd.pairs()[WORKER1.encode()]["create_revision"]
    for _ in range(5):
        etcd.delete(WORKER1)
        wait_until(lambda: (pair := etcd.pairs().get(WORKER1.encode())) and pair["create_revision"] != token, 20, "another claim: the pauses grow to 8 s, jittered by a half")
        token = etcd.pairs()[WORKER1.encode()]["create_revision"]
        wait_says(node, WORKER1)
    node.wait_logged("are left out", times=4)
    open(f"{directory}/go", "w", encoding="utf-8").close()
    wait_until(lambda: script.out().count("\n") == 3, 10, script.out)
    assert script.out() == f"claim {first} 1\nloss {first} 2\nclaim {token} 11\n"
    assert node.terminate() == 0
    assert script.out().splitlines()[3:] == [f"loss {token} 12"]


def test_a_disk_that_stands_still_holds_no_program_back(etcd, nodes, script, state):
    """A FIFO in the place of a file that is written holds the writer up until it is read."""
    node = started(etcd, nodes, script("echo $IDETCD_EVENT $IDETCD_SEQUENCE >> $OUT"), state.option)
    wait_contains(script, "claim")
    fifo = state.file("env") + ".new"
    os.mkfifo(fifo)
    etcd.delete(WORKER1)
    wait_contains(script, "claim 1\nloss 2\nclaim 3\n")
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    assert node.terminate() == 0
    os.close(reader)
    assert script.out() == "claim 1\nloss 2\nclaim 3\nloss 4\n"


def test_the_identity_does_not_wait_for_the_names(etcd, nodes, state):
    os.makedirs(state.path)
    node = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.7", state.option]))
    wait_until(lambda: state.has("env"), 10, "the state to be taken")  # a thread of its own does
    fifo = state.file("env").removesuffix("env") + "names.new"
    os.mkfifo(fifo)
    wait_says(node, WORKER1)
    # The names are saved some time after they are learnt.
    wait_until(lambda: any("fifo" in contents(path) or "partner" in contents(path)
                           for path in glob.glob(f"/proc/{node.pid}/task/*/wchan")), 10, "the names to be saved")
    token = etcd.pairs()[WORKER1.encode()]["create_revision"]
    etcd.delete(WORKER1)
    wait_until(lambda: "IDETCD_TOKEN" in contents(state.file("env")) and f"'{token}'" not in contents(state.file("env")), 10,
               lambda: f"the identity to change: {contents(state.file('env'))}")
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    assert node.terminate() == 0
    os.close(reader)


def test_it_has_no_terminal_and_no_socket_of_the_server(etcd, nodes, script):
    hook = script("readlink /proc/self/fd/0 >> $OUT", "ls -l /proc/$$/fd | grep -c socket >> $OUT", "cat >> $OUT", "echo said",
                  "echo end >> $OUT")
    node = started(etcd, nodes, hook)
    wait_contains(script, "end")
    assert script.out() == "/dev/null\n0\nend\n"
    node.wait_logged("said\n")  # its output is the server's


@pytest.mark.parametrize("how", ["QUIT", "second INT", "QUIT with a retired cluster"])
def test_an_end_at_once_leaves_no_program_behind(etcd, nodes, script, state, how):
    hang = ("trap '' TERM INT HUP QUIT", "sleep 600 &", "echo $$ $! >> $OUT", "wait")
    node = started(etcd, nodes, script(*hang), state.option)
    wait_contains(script, "\n")
    pids = script.out().split()
    identity = state.file("env")
    wait_until(lambda: "IDETCD_NAME" in contents(identity), 5, "the identity")
    if how == "QUIT":
        node.signal(signal.SIGQUIT)
        assert node.exit_code(5) == 0
        assert set(etcd.names()) == {WORKER1}, "the name stays until its lease ends"
    elif how == "second INT":
        etcd.pause()  # so that the first takes its time
        node.signal(signal.SIGINT)
        wait_until(lambda: "SIGINT: Shutting down" in node.logs(), 5, "the first")
        node.signal(signal.SIGINT)
        assert node.exit_code(5) == 2
        etcd.resume()
    else:
        etcd.pause()
        with open(node.corefile_path, "w", encoding="utf-8") as file:
            file.write(corefile(etcd.endpoint, "ps{{.ID}}.tf.local."))
        node.signal(signal.SIGHUP)
        wait_until(lambda: "Reloading complete" in node.logs(), 5, "the reload")
        node.signal(signal.SIGQUIT)
        assert node.exit_code(5) == 0
        etcd.resume()
    wait_until(lambda: all(gone(pid) for pid in pids), 5, lambda: f"{pids} to be gone")
    assert contents(identity) == "", "no process is called that any more"
    assert script.out().split() == pids, "and no other was begun"


def helper_of(node):
    """The process that runs the programs."""
    with open(f"/proc/{node.pid}/task/{node.pid}/children", encoding="ascii") as file:
        return int(file.read())


def test_a_server_that_is_killed_leaves_no_program_behind(etcd, nodes, script):
    node = started(etcd, nodes, script("trap '' TERM INT HUP QUIT", "sleep 600 &", "echo $$ $! >> $OUT", "wait"))
    wait_contains(script, "\n")
    pids = [*script.out().split(), helper_of(node)]
    node.kill()
    wait_until(lambda: all(gone(pid) for pid in pids), 5, lambda: f"{pids} to be gone")


def test_a_signal_for_the_whole_service_still_lets_the_loss_be_told(etcd, nodes, script):
    """systemd sends its SIGTERM to every process of a service, a terminal its SIGINT."""
    node = started(etcd, nodes, script("echo $IDETCD_EVENT >> $OUT"))
    wait_contains(script, "claim")
    os.killpg(node.pid, signal.SIGTERM)
    assert node.exit_code(8) == 0
    assert script.out() == "claim\nloss\n"


def test_without_the_helper_the_server_goes_on_and_says_so(etcd, nodes, script):
    node = started(etcd, nodes, script("echo $IDETCD_EVENT >> $OUT"))
    wait_contains(script, "claim")
    os.kill(helper_of(node), signal.SIGKILL)
    etcd.delete(WORKER1)
    node.wait_logged("cannot be run: the helper process that runs programs has ended", times=2)
    wait_says(node, WORKER1)
    assert script.out() == "claim\n"


def test_what_a_stopped_helper_was_asked_to_run_comes_first(stopped_etcd, nodes, script):
    """Late, and what follows after it, in order; what came and went meanwhile is left out."""
    node = started(stopped_etcd, nodes, script("echo $IDETCD_EVENT $IDETCD_SEQUENCE >> $OUT"), launch=True).start()
    helper = helper_of(node)
    os.kill(helper, signal.SIGSTOP)
    try:
        stopped_etcd.start()
        wait_says(node, WORKER1)
        for losses in (1, 2, 3):
            stopped_etcd.delete(WORKER1)
            node.wait_logged(f"lost {WORKER1}", times=losses)
            wait_says(node, WORKER1)
        node.wait_logged("a claim and its loss (events 5 and 6) are left out")
    finally:
        os.kill(helper, signal.SIGCONT)
    expected = ["claim 1", "loss 2", "claim 7"]
    wait_until(lambda: script.out().splitlines() == expected, 10, script.out)


@pytest.mark.parametrize("stuck", ["program", "helper"])
def test_what_cannot_be_killed_holds_up_neither_a_reload_nor_the_end(etcd, nodes, script, stuck):
    """A program that waits for a disk (state D), and a helper process that is stopped."""
    disk = FreezableDisk() if stuck == "program" else None
    helper = None
    try:
        if disk:
            disk.freeze()
        hook = script("echo $IDETCD_EVENT >> $OUT", f"echo x > {disk.path}/x" if disk else "")
        node = started(etcd, nodes, hook)
        wait_contains(script, "claim")
        if stuck == "helper":
            helper = helper_of(node)
            os.kill(helper, signal.SIGSTOP)
        for pattern, name in (("ps{{.ID}}.tf.local.", "ps1.tf.local."), ("db{{.ID}}.tf.local.", "db1.tf.local."), ("w{{.ID}}.tf.local.", "w1.tf.local.")):
            rewrite(node, corefile(etcd.endpoint, pattern, lease=20, options=["address 192.0.2.7 2001:db8::7", f"on-claim {hook}"]))
            node.signal(signal.SIGUSR1)
            wait_says(node, name, timeout=30)
        node.wait_logged("did not end in time and was killed, and has not ended since", times=3, timeout=30)
        node.signal(signal.SIGTERM)
        assert node.exit_code(30) == 0
        assert etcd.pairs() == {}
    finally:
        if helper:
            os.kill(helper, signal.SIGCONT)
        if disk:
            disk.close()


# --- the identity file ---

def test_a_shell_can_source_it(etcd, nodes, state):
    node = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.7", state.option]))
    wait_says(node, WORKER1)
    identity = f"{state.path}/identity"
    wait_until(lambda: contents(identity), 5, "the identity")
    token, uuid = etcd.pairs()[WORKER1.encode()]["create_revision"], etcd.names()[WORKER1]["id"]
    assert contents(identity) == (f"IDETCD_NAME='{WORKER1}'\nIDETCD_ID='1'\nIDETCD_TOKEN='{token}'\nIDETCD_UUID='{uuid}'\n"
                                  f"IDETCD_IPV4='192.0.2.7'\nIDETCD_IPV6=''\nIDETCD_GENERATION='{token}'\n")
    assert re.fullmatch(UUID, uuid)
    show = f'IDETCD_IPV6=old; . {identity} && printf "%s|%s|%s|%s" "$IDETCD_NAME" "$IDETCD_ID" "$IDETCD_IPV4" "$IDETCD_IPV6"'
    result = subprocess.run(["sh", "-eu", "-c", show], capture_output=True, text=True, check=True)
    assert result.stdout == f"{WORKER1}|1|192.0.2.7|"
    assert os.stat(identity).st_mode & 0o777 == 0o644, "for every user of the machine"


@pytest.mark.parametrize("pattern", ["\"w';touch x;'{{.ID}}.tf.local.\"", '"w$(touch x){{.ID}}.tf.local."', '"w`id`{{.ID}}.tf.local."'])
def test_no_pattern_can_put_a_command_into_it(etcd, nodes, state, pattern):
    """A name that is no host name is refused at the start, so the file never has one."""
    node = nodes.make(corefile(etcd.endpoint, pattern, options=[state.option])).launch()
    assert node.exit_code(5) == 1
    assert "bad pattern" in node.err()
    assert not os.path.exists(state.path)


def test_it_is_replaced_whole_and_emptied_on_loss(etcd, nodes, state):
    """There is one name, and it is taken from the node and freed again."""
    node = nodes.start(corefile(etcd.endpoint, limit=1, lease=20, options=["address 192.0.2.7", state.option]))
    wait_says(node, WORKER1)
    identity = state.file("env")
    whole = re.compile(rf"IDETCD_NAME='worker1\.tf\.local\.'\nIDETCD_ID='1'\nIDETCD_TOKEN='(\d+)'\nIDETCD_UUID='{UUID}'\n"
                       r"IDETCD_IPV4='192\.0\.2\.7'\nIDETCD_IPV6=''\nIDETCD_GENERATION='\d+'\n")
    seen, inodes = [], set()

    def look():
        text = contents(identity)
        inodes.add(os.stat(identity).st_ino)
        if not seen or seen[-1] != text:
            seen.append(text)
        return text

    wait_until(lambda: contents(identity), 10, "the identity")
    look()
    for _ in range(2):
        etcd.put(WORKER1, '{"ipv4":"198.51.100.1"}')
        wait_until(lambda: not look(), 10, lambda: f"{seen}\n{node.logs()}", interval=0)
        etcd.delete(WORKER1)
        wait_until(look, 20, lambda: f"{seen}\n{node.logs()}", interval=0)
    assert [bool(text) for text in seen] == [True, False, True, False, True], seen
    matches = [whole.fullmatch(text) for text in seen if text]
    assert all(matches), "never half of it"
    tokens = [int(match[1]) for match in matches]
    assert tokens == sorted(set(tokens)), "and they only rise"
    assert len(inodes) > 1, "another file takes its place"
    assert node.terminate() == 0
    assert contents(identity) == ""


def test_what_a_killed_process_has_left_is_emptied_before_etcd_answers(etcd, nodes, state):
    node = nodes.start(corefile(etcd.endpoint, options=["address 192.0.2.7", state.option]))
    wait_says(node, WORKER1)
    identity = state.file("env")
    wait_until(lambda: contents(identity), 5, "the identity")
    node.kill()
    assert contents(identity)
    etcd.pause()
    node.start()
    wait_until(lambda: contents(identity) == "", 5, lambda: contents(identity))
    etcd.resume()
    wait_says(node, WORKER1, timeout=20)
    wait_until(lambda: contents(identity), 5, "the identity")


def test_two_patterns_have_a_file_each_and_no_common_one(etcd, nodes, state):
    text = corefile(etcd.endpoint, options=["address 192.0.2.7", state.option])
    node = nodes.start(text.replace(". {", "tf.local {", 1)
                       + corefile(etcd.endpoint, "db{{.ID}}.db.local.", options=["address 192.0.2.7", state.option]).replace(
                           ". {", "db.local {", 1))
    files = lambda: sorted(contents(path).split("'")[1] for path in glob.glob(f"{state.path}/*.env") if contents(path))
    wait_until(lambda: files() == ["db1.db.local.", WORKER1], 10, lambda: f"{files()}\n{node.logs()}")
    assert not os.path.lexists(f"{state.path}/identity"), "which of the two would it be?"
