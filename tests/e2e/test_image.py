"""The container image, as far as it can be made without a container runtime: its Dockerfile's last step is run, and the
server in what comes of it, as the user and with the command line of the image."""

import glob
import json
import os
import re
import shlex
import subprocess

import pytest

from harness.namespace import Namespace
from harness.node import ROOT, binary
from harness.processes import Process, wait_until

DOCKERFILE = os.path.join(ROOT, "src", "package", "Dockerfile")
KNOWN = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "VOLUME", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
COREFILE = ".:53 {\n    bind 127.0.0.1\n    whoami\n}\n"


def instructions():
    """(instruction, the rest of its line), in their order."""
    with open(DOCKERFILE, encoding="ascii") as file:
        lines = re.sub(r"^#.*\n", "", file.read(), flags=re.MULTILINE).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in lines.splitlines() if line.strip()]


def last(name):
    return [rest for instruction, rest in instructions() if instruction == name][-1]


def test_what_it_copies_is_there():
    with open(os.path.join(ROOT, ".dockerignore"), encoding="ascii") as file:
        ignored = file.read().split()
    assert {"build", ".git"} <= set(ignored)
    copied = 0
    for instruction, rest in instructions():
        assert instruction in KNOWN
        if instruction == "COPY" and not rest.startswith("--from="):
            for source in shlex.split(rest)[:-1]:
                assert glob.glob(os.path.join(ROOT, source)) and source not in ignored, source
                copied += 1
    assert copied


def test_its_commands_are_those_of_a_shell():
    commands = [rest for instruction, rest in instructions() if instruction == "RUN"]
    assert len(commands) == 3
    for command in commands:
        subprocess.run(["sh", "-n", "-c", command], check=True, timeout=20)
        for script in re.findall(r"tools/[a-z-]+", command):
            assert os.access(os.path.join(ROOT, script), os.X_OK), script
    presets = subprocess.run(["cmake", "--list-presets"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=20).stdout
    assert f'"{re.search("--preset ([a-z]+)", commands[1])[1]}"' in presets


@pytest.fixture(name="image")
def made_image(directory):
    """The file system of the image, with a Corefile."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    image = os.path.join(directory, "image")
    command = last("RUN").replace("/image", image).replace("build/release/idetcd", binary())
    result = subprocess.run(["sh", "-e", "-c", command], cwd=ROOT, check=False, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    os.mkdir(os.path.join(image, "proc"))  # a container has it
    with open(os.path.join(image, "etc", "idetcd", "Corefile"), "w", encoding="ascii") as file:
        file.write(COREFILE)
    return image


def test_the_server_runs_in_it_without_root(image, directory):
    user = last("USER")
    argv = json.loads(last("ENTRYPOINT")) + json.loads(last("CMD"))
    environment = dict([last("ENV").split("=")])
    namespace = Namespace(directory)
    try:
        namespace.run("mount", "-t", "proc", "proc", os.path.join(image, "proc"))
        inside = [*namespace.prefix, "env", "-i", "PATH=/usr/bin:/usr/sbin", *(f"{name}={value}" for name, value in environment.items()),
                  "chroot", f"--userspec={user}", image]
        server = Process("server", directory)
        try:
            server.spawn([*inside, *argv])
            wait_until(lambda: namespace.attempt("dig", "+short", "+time=1", "+tries=1", "SRV", "image.test", "@127.0.0.1").returncode == 0,
                       20, server.logs)
            assert os.listdir(os.path.join(image, "run", "idetcd")) == ["53.sock"], server.logs()
            assert os.stat(os.path.join(image, "run", "idetcd", "53.sock")).st_uid == int(user.split(":")[0])
            assert "sandbox:" not in server.logs()
            namespace.run(*inside[len(namespace.prefix):], *json.loads(last("HEALTHCHECK").partition(" CMD ")[2]))
            server.signal(15)
            assert server.exit_code(20) == 0
        finally:
            server.kill()
    finally:
        namespace.close()
