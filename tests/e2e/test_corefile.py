"""The Corefile: what starts a node, and what is refused with file and line."""

import os
import re
import subprocess

import dns.rdatatype
import pytest

from corefiles import corefile
from dns_client import answers, ask, assert_nxdomain, rcode, wait_resolves
from harness.node import binary
from harness.processes import TIME_FACTOR, wait_until
from harness.secure_etcd import Authority

NOWHERE = "http://127.0.0.1:1"  # nothing listens there, and nothing has to


def run(directory, text, *arguments, name="Corefile", env=None):
    """Runs with this Corefile and waits for the end: (exit code, stdout, stderr)."""
    with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
        file.write(text)
    result = subprocess.run([binary(), "-conf", name, *arguments], cwd=directory, capture_output=True, text=True, check=False,
                            timeout=20 * TIME_FACTOR, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL)
    return result.returncode, result.stdout, result.stderr


def validate(directory, text, **options):
    return run(directory, text, "-validate", **options)


def block(*lines):
    return ". {\n    idetcd {\n        " + "\n        ".join(lines) + "\n    }\n}\n"


# --- refused ---

PATTERN = "pattern worker{{.ID}}.tf.local."

# title: (text, line, what the message must say; None: anything)
REFUSED = {
    "an unknown directive": (". {\n    whoami\n    nonsense\n}\n", 3, "Unknown directive 'nonsense'"),
    "an unknown directive after a comment": ("# a comment\n\n. {\n    # another\n    frobnicate a b\n}\n", 5, "Unknown directive 'frobnicate'"),
    "a directive of CoreDNS that is not built in": (".:53 {\n    kubernetes cluster.local\n}\n", 2, "Unknown directive 'kubernetes'"),
    "an unknown option of idetcd": (block("endpoint " + NOWHERE, "colour blue", PATTERN), 4, "colour"),
    "no pattern": (". {\n    idetcd {\n        endpoint %s\n    }\n}\n" % NOWHERE, None, "pattern"),
    "an empty idetcd block": (". {\n    idetcd {\n    }\n}\n", None, "pattern"),
    "a pattern without .ID": (block("endpoint " + NOWHERE, "pattern worker.tf.local."), 4, None),
    "a pattern with another field": (block("pattern worker{{.Id}}.tf.local."), 3, ".Id is not supported: {{.Id}}, use .ID"),
    "a pattern that does not close": (block("pattern worker{{.ID"), 3, "{{.ID is not closed"),
    "a pattern with an unknown function": (block('pattern "worker{{shout .ID}}.tf.local."'), 3, "there is no function 'shout'"),
    "a pattern whose printf wants a string": (block('pattern worker{{printf "%s" .ID}}.tf.local.'), 3, "a string, and .ID is a number: use %d"),
    "a pattern whose printf pads with blanks": (block('pattern worker{{printf "%3d" .ID}}.tf.local.'), 3, "use %03d"),
    "a pattern whose printf has a flag": (block('pattern worker{{printf "%#x" .ID}}.tf.local.'), 3, "use %x"),
    "a pattern with text in a format": (block('pattern {{printf "worker%d" .ID}}.tf.local.'), 3, "outside of the braces"),
    "a pattern with if": (block('pattern "worker{{if .ID}}x{{end}}.tf.local."'), 3, "'if' is not supported: {{if .ID}}, use {{.ID}} or "),
    "a pattern with range": (block('pattern "worker{{range .ID}}x{{end}}.tf.local."'), 3, "'range' is not supported"),
    "a pattern with a pipeline": (block('pattern worker{{.ID | printf "%03d"}}.tf.local.'), 3, "a pipeline ('|') is not supported"),
    "a pattern with a comment": (block('pattern worker{{.ID}}{{/* */}}.tf.local.'), 3, "a comment is not supported"),
    "a pattern with a trim marker": (block('pattern worker{{- .ID}}.tf.local.'), 3, "the trim marker '{{- ' is not supported"),
    "a label that ends with a hyphen": (block("pattern worker{{.ID}}-.tf.local."), 3, "ends with '-'"),
    "a pattern of no words": (block("pattern"), 3, None),
    "a label of 64 bytes": (block("pattern %s{{.ID}}.tf.local." % ("x" * 63)), 3, None),
    "a label that grows to 64 bytes at 10": (block("pattern %s{{.ID}}.tf.local." % ("x" * 62), "limit 10"), None, "the name of ID 10, "),
    "a label that grows to 64 bytes at a billion": (
        block("pattern %s{{.ID}}.tf.local." % ("x" * 54), "limit 2000000000"), None, "the name of ID 1000000000, "),
    "a name of 256 bytes": (block("pattern w{{.ID}}.%stf.local." % (("x" * 59 + ".") * 4 + "y" * 2 + ".")), 3, None),
    "an empty label": (block("pattern worker{{.ID}}..tf.local."), 3, None),
    "a space in the name": (block('pattern "wor ker{{.ID}}.tf.local."'), 3, None),
    "limit 0": (block("limit 0", PATTERN), 3, None),
    "limit -1": (block("limit -1", PATTERN), 3, None),
    "limit that is no number": (block("limit many", PATTERN), 3, None),
    "limit with a tail": (block("limit 5x", PATTERN), 3, None),
    "limit of two words": (block("limit 5 6", PATTERN), 3, None),
    "limit of no words": (block("limit", PATTERN), 3, None),
    "limit out of range": (block("limit 99999999999999999999", PATTERN), 3, None),
    "no endpoint": (block("endpoint", PATTERN), 3, None),
    "an endpoint without a port number": (block("endpoint http://127.0.0.1:port", PATTERN), 3, None),
    "an endpoint with a port out of range": (block("endpoint http://127.0.0.1:65536", PATTERN), 3, None),
    "an endpoint of another scheme": (block("endpoint ftp://127.0.0.1:2379", PATTERN), 3, None),
    "ttl of nonsense": (block("ttl soon", PATTERN), 3, None),
    "ttl below nothing": (block("ttl -5s", PATTERN), 3, None),
    "lease of nothing": (block("lease 0s", PATTERN), 3, None),
    "lease of half a second": (block("lease 500ms", PATTERN), 3, None),
    "reconcile never": (block("reconcile 0s", PATTERN), 3, None),
    "reconcile without a value": (block("reconcile", PATTERN), 3, None),
    "watch without a range": (block("watch", PATTERN), 3, None),
    "watch of a path": (block("watch /registry", PATTERN), 3, None),
    "watch of a range backwards": (block("watch b:a", PATTERN), 3, None),
    "watch of too many ranges": (block("watch " + " ".join(f"a{i}." for i in range(60)), PATTERN), None, None),
    "an address that is none": (block("address 300.1.1.1", PATTERN), 3, None),
    "an address of no words": (block("address", PATTERN), 3, None),
    "observe with an argument": (block("observe yes", PATTERN), 3, None),
    "idetcd twice in one block": (". {\n    idetcd {\n        %s\n    }\n    idetcd {\n        %s\n    }\n}\n" % (PATTERN, PATTERN), 5, None),
    "two IPv4 addresses": (block("address 192.0.2.1 192.0.2.2", PATTERN), None, None),
    "a link-local address": (block("address fe80::1", PATTERN), None, None),
    "an argument for idetcd": (". {\n    idetcd tf.local {\n        %s\n    }\n}\n" % PATTERN, 2, None),
    "a block that does not end": (". {\n    whoami\n", None, None),
    "a directive's block that does not end": (". {\n    idetcd {\n        %s\n" % PATTERN, None, None),
    "a brace too many": (". {\n    whoami\n}\n}\n", None, None),
    "no opening brace": (".\nwhoami\n}\n", None, None),
    "a quote that does not end": ('. {\n    idetcd {\n        pattern "worker{{.ID}}\n    }\n}\n', None, None),
    "the same zone and port twice": (".:5300 {\n    whoami\n}\n.:5300 {\n    log\n}\n", None, None),
    "the same zone and port twice, in other words": ("tf.local:5300 {\n    whoami\n}\nTF.local.:5300 {\n    log\n}\n", None, None),
    "the same key twice in one block": ("a.org:5300 a.org:5300 {\n    whoami\n}\n", None, None),
    "a port that is no number": (".:dns5 {\n    whoami\n}\n", None, None),
    "a port out of range": (".:65536 {\n    whoami\n}\n", None, None),
    "an unknown scheme": ("ftp://.:53 {\n    whoami\n}\n", None, None),
    "a zone with a label of 64 bytes": ("%s.org {\n    whoami\n}\n" % ("x" * 64), None, None),
    "a zone with an empty label": ("a..org {\n    whoami\n}\n", None, None),
    "whoami with an argument": (". {\n    whoami me\n}\n", 2, None),
    "bind without an address": (". {\n    bind\n    whoami\n}\n", 2, None),
    "an option of errors": (". {\n    errors {\n        frob\n    }\n}\n", 3, "frob"),
    "an option of log": (". {\n    log {\n        frob\n    }\n}\n", 3, "frob"),
    "import of a file that is not there": (". {\n    import nowhere.conf\n}\n", 2, "nowhere.conf"),
    "import of nothing": (". {\n    import\n}\n", 2, None),
    "import of itself": (". {\n    import Corefile\n}\n", None, None),
    "a snippet that imports itself": ("(a) {\n    import a\n}\n. {\n    import a\n}\n", None, None),
    "a snippet used before it is there": (". {\n    import later\n}\n(later) {\n    whoami\n}\n", 2, "later"),
    "a snippet twice": ("(a) {\n    log\n}\n(a) {\n    whoami\n}\n. {\n    import a\n}\n", None, None),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_file_and_line(directory, case):
    text, line, message = REFUSED[case]
    code, _, err = validate(directory, text)
    assert code == 1, err
    found = re.search(r"(?:^|[ /])Corefile:(\d+) - Error during parsing: (.+)", err)
    assert found, err
    assert line is None or int(found[1]) == line, err
    assert message is None or message in found[2], err
    assert len(err.strip().splitlines()) == 1, f"one clear line: {err}"


@pytest.mark.parametrize("case", ["an unknown directive", "limit 0", "a pattern without .ID"])
def test_starting_refuses_what_validate_refuses(directory, case):
    text, _, _ = REFUSED[case]
    code, out, err = run(directory, text, "-dns.port", "0")
    assert code == 1
    assert err == validate(directory, text)[2]


def test_the_error_names_the_file_that_is_imported(directory):
    os.mkdir(os.path.join(directory, "conf.d"))
    with open(os.path.join(directory, "conf.d", "broken"), "w", encoding="utf-8") as file:
        file.write("\nwhoami\nnonsense\n")
    code, _, err = validate(directory, ". {\n    import conf.d/broken\n}\n")
    assert code == 1
    assert re.search(r"broken:3 - Error during parsing: Unknown directive 'nonsense'", err), err


def test_import_bombs_are_bounded(directory):
    snippets = "(s0) {\n    log\n}\n"
    for i in range(1, 40):
        snippets += f"(s{i}) {{\n" + f"    import s{i - 1}\n" * 2 + "}\n"
    code, _, err = validate(directory, snippets + ". {\n    import s39\n}\n")
    assert code == 1 and "Error during parsing" in err


def test_a_refused_corefile_touches_nothing(directory, etcd):
    text = block("endpoint " + etcd.endpoint, "limit 0", PATTERN)
    assert run(directory, text)[0] == 1
    assert etcd.pairs() == {} and etcd.leases() == []


@pytest.mark.parametrize("text", [b"\xff\xfe. {", b"\0", b"{", b"}", b"{}", b"(", b"() {\n}\n", b"import", b'"', b". {\n" * 10_000,
                                  b"a" * 1_000_000, b". { whoami"], ids=range(12))
def test_rubbish_is_refused_in_an_orderly_way(directory, text):
    with open(os.path.join(directory, "Corefile"), "wb") as file:
        file.write(text)
    result = subprocess.run([binary(), "-validate"], cwd=directory, capture_output=True, check=False, timeout=20 * TIME_FACTOR)
    assert result.returncode == 1 and result.stderr


# --- all at once, with what to write instead ---

MANY = """. {
    idetcd {
        endpont http://127.0.0.1:1
        limit many
        tls nowhere.pem nowhere.key
        ttl soon
        lease 5s 6s
    }
    hosts broken.hosts {
        tll 5
    }
    forwrad . 192.0.2.1
    forward . servers.conf {
        tls broken.pem
        policy best
        max_fails
    }
    acl {
        allow net nonsense
        permit
    }
    kubernetes cluster.local
    workers none
    import nowhere
}
bad..zone a:port {
    whoami me
}
b c:1 b {
    whoami you
}
"""

# line: what is said of it, and what to write instead
MANY_ERRORS = [
    (3, "unknown property 'endpont'", "did you mean 'endpoint'"), (4, "'many'", "limit N"), (5, "nowhere.pem", "file"),
    (5, "nowhere.key", "file"), (6, "soon", "ttl DURATION"), (7, "Wrong argument count", "lease DURATION"),
    (8, "idetcd needs a pattern", "pattern NAME{{.ID}}.ZONE."), (9, "broken.hosts:2: not an IP address: '192.0.2.300'", "ADDRESS NAME"),
    (10, "unknown property 'tll'", "did you mean 'ttl'"), (12, "Unknown directive 'forwrad'", "did you mean 'forward'"),
    (13, "servers.conf: there is no server in it", "nameserver IP"), (14, "broken.pem", "PEM files"),
    (15, "unknown policy 'best'", "policy random|round_robin|sequential"), (16, "Wrong argument count", "max_fails N"),
    (19, "nonsense", "acl "), (20, "permit", "acl "), (22, "Unknown directive 'kubernetes'", "CoreDNS has it, it is not supported here; remove it, or write another: "),
    (23, "workers must be a number", "workers N"), (24, "not found: nowhere", "import NAME|FILE|GLOB"),
    (26, "bad..zone", "ZONE[:PORT]..."), (26, "invalid port", "ZONE[:PORT]..."), (27, "Wrong argument count", "whoami"),
    (29, "already defined", "in one block only"), (30, "Wrong argument count", "whoami"),
]


def test_a_file_without_servers_is_enough_beside_a_server(directory):
    with open(os.path.join(directory, "empty.conf"), "w", encoding="utf-8"):
        pass
    assert validate(directory, ". {\n forward . empty.conf 127.0.0.1\n}\n")[0] == 0
    code, _, stderr = validate(directory, ". {\n forward . empty.conf\n}\n")
    assert code == 1 and "empty.conf: there is no server in it" in stderr


def test_a_state_directory_that_nobody_can_write(directory):
    text = ". {\n idetcd {\n  endpoint http://127.0.0.1:1\n  pattern w{{.ID}}.tf.\n  state state\n }\n}\n"
    os.mkdir(os.path.join(directory, "state"), 0o755)
    assert validate(directory, text)[0] == 0
    os.chmod(os.path.join(directory, "state"), 0o555)
    code, _, stderr = validate(directory, text)
    assert code == 1 and "Corefile:5" in stderr and "state: its mode does not let its owner write; write: the path" in stderr


@pytest.mark.parametrize("state, mode, whose", [("state", 0o577, "its mode"), ("state", 0o677, "its mode"), ("state/new", 0o577, "the mode of state")],
                         ids=["others may write", "others may search", "it cannot be made"])
def test_validate_refuses_a_state_directory_that_the_start_refuses(directory, free_port, state, mode, whose):
    text = f". {{\n idetcd {{\n  endpoint http://127.0.0.1:1\n  pattern w{{{{.ID}}}}.tf.\n  state {state}\n }}\n}}\n"
    os.mkdir(os.path.join(directory, "state"))
    os.chmod(os.path.join(directory, "state"), mode)
    code, _, stderr = validate(directory, text)
    assert code == 1 and "Corefile:5" in stderr and f"{state}: {whose} does not let its owner write; write: the path" in stderr
    code, _, stderr = run(directory, text, "-dns.port", str(free_port()))
    assert code == 1 and f"state directory {state}: Permission denied" in stderr, "nor does the server start"


# What is wrong with the line of a directive hides nothing of its block.
HEADS = """. {
    idetcd here {
        limit many
    }
    hosts /dev/null bad..zone {
        ttl 0
    }
    forward bad..zone 192.0.2.1:port tls://no..body 192.0.2.2 {
        policy best
    }
    acl bad..zone {
        permit
    }
    cache 0 bad..zone {
        prefetch never
    }
    log bad..zone {/nothing} {
        class some
    }
    errors /var/log/errors {
        consolidate 5s (
    }
    bind 192.0.2.300 {
        except 192.0.2.301
    }
}
"""
HEADS_ERRORS = [
    (2, "Wrong argument count", "idetcd { "), (3, "'many'", "limit N"), (4, "idetcd needs a pattern", "pattern NAME"),
    (5, "bad..zone", "hosts [FILE"), (6, "ttl", "ttl SECONDS"),
    (8, "bad..zone", "forward FROM TO"), (8, "192.0.2.1:port", "forward FROM TO"), (8, "tls://no..body", "forward FROM TO"),
    (9, "unknown policy 'best'", "policy random"), (11, "bad..zone", "acl "), (12, "permit", "acl "),
    (14, "cache TTL", "cache [TTL]"), (14, "bad..zone", "cache [TTL]"), (15, "prefetch", "prefetch AMOUNT"),
    (17, "bad..zone", "log "), (18, "some", "class success"),
    (20, "/var/log/errors", "errors "), (21, "regular expression", "consolidate DURATION"),
    (23, "192.0.2.300", "bind ADDRESS"), (24, "192.0.2.301", "except ADDRESS"),
]


def test_every_error_is_reported_at_once_with_what_to_write(directory):
    for name, content in (("broken.hosts", "192.0.2.1 one\n192.0.2.300 two # three\n"), ("servers.conf", "search lan\n"),
                          ("broken.pem", "-----BEGIN NOTHING-----\n")):
        with open(os.path.join(directory, name), "w", encoding="ascii") as file:
            file.write(content)
    expect_errors(directory, MANY, MANY_ERRORS)
    expect_errors(directory, HEADS, HEADS_ERRORS)


def expect_errors(directory, corefile, errors):
    code, _, err = validate(directory, corefile)
    lines = err.splitlines()
    assert code == 1 and all(re.match(r"Corefile:\d+ - Error during parsing: ", line) for line in lines), err
    for number, what, instead in errors:
        assert [line for line in lines if line.startswith(f"Corefile:{number} ") and what in line and instead in line], \
            f"{number}, {what}, {instead} in\n{err}"
    assert len(lines) == len(errors), err


def test_files_are_read_when_validating(directory):
    """A start does without them: a server waits for a certificate, and a hosts file may come later."""
    authority = Authority(directory)
    certificate, key = authority.issue()
    _, other_key = authority.issue()
    with open(os.path.join(directory, "names"), "w", encoding="ascii") as file:
        file.write("# only a comment\n\n192.0.2.1\tone two\n::1 three\n")
    text = block("endpoint https://127.0.0.1:1", PATTERN, "tls CERT KEY CA")[:-2] + "    hosts names\n}\n"
    good = text.replace("CERT", certificate).replace("KEY", key).replace("CA", authority.certificate)
    assert validate(directory, good)[0] == 0
    code, _, err = validate(directory, good.replace(key, other_key))
    assert code == 1 and re.match(r"Corefile:5 - .* is not the key of ", err), err


def test_zone_files_are_built_when_validating(directory):
    """With the zones of the server block, where the line names none."""
    for content, wrong in (("@ SOA ns m 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n", None), ("ns A 192.0.2.1\n", "has no SOA record"),
                           ("@ SOA ns m 1 2 3 4 5\n@ NS ns\na A 192.0.2.1\na CNAME b\n", "CNAME"), ("", "has no SOA record")):
        with open(os.path.join(directory, "zone"), "w", encoding="ascii") as file:
            file.write("$TTL 60\n" + content)
        for corefile in ("example.org {\n    file zone\n}\n", ". {\n    file zone example.org\n}\n"):
            code, _, err = validate(directory, corefile)
            assert code == (1 if wrong else 0) and (not wrong or err.startswith("Corefile:2 ") and wrong in err), err


# --- accepted ---

SEED = """. {
    idetcd {
        endpoint http://127.0.0.1:2379
        limit 5
        pattern worker{{.ID}}.tf.local.
    }
}
"""

ACCEPTED = {
    "the seed": SEED,
    "the seed on a port": SEED.replace(". {", ".:1053 {", 1),
    "several endpoints": SEED.replace(":2379", ":2379 http://127.0.0.1:2381 localhost:2383 http://[::1]:2385"),
    "quoted pattern": SEED.replace("worker{{.ID}}.tf.local.", '"worker{{ .ID }}.tf.local."'),
    "a label that has room for every ID": block("pattern %s{{.ID}}.tf.local." % ("x" * 53), "limit 2147483647"),
    "numbers side by side": block("pattern worker1{{.ID}}{{.ID}}.tf.local.", "limit 2147483647"),
    "blanks as Go allows them": block('pattern "worker{{  printf   `%04x`\t.ID }}.tf.local."'),
    "printf without quotes around it": SEED.replace("{{.ID}}", '{{printf "%03d" .ID}}'),
    "printf": SEED.replace("worker{{.ID}}.tf.local.", '"worker{{printf \\"%03d\\" .ID}}.tf.local."'),
    "defaults": ". {\n    idetcd {\n        pattern worker{{.ID}}.tf.local.\n    }\n}\n",
    "a label of 63 bytes at every ID": block("pattern %s{{.ID}}.tf.local." % ("x" * 62), "limit 9"),
    "every option": block("endpoint " + NOWHERE, "limit 7", PATTERN, "ttl 10s", "lease 30s", "reconcile 5m", "address 192.0.2.1 2001:db8::1",
                          "fallthrough", "observe", "watch pattern db. a:c"),
    "fallthrough with zones": block(PATTERN, "fallthrough a.org b.org"),
    "every directive": ".:1053 {\n    bind 127.0.0.1 ::1\n    errors\n    log\n    whoami\n    idetcd {\n        %s\n    }\n}\n" % PATTERN,
    "windows": "\ufeff" + SEED.replace("\n", "\r\n"),
    "no braces": ".\nwhoami\nlog\n",
    "a comment in the middle": ".  { # here\n  whoami# there\n}# and\n# there\n",
    "several zones": "a.org b.org:1053, c.org,\nd.org {\n    whoami\n}\n",
    "one zone on two ports": "a.org:1053 a.org:1054 {\n    whoami\n}\n",
    "a scheme": "dns://.:1053 {\n    whoami\n}\n",
    "a reverse zone": "10.0.0.0/8 2001:db8::/32 {\n    whoami\n}\n",
    "an empty block": ". {\n}\n",
    "an unused snippet": "(unused) {\n    whoami\n}\n. {\n    whoami\n}\n",
    "log with names, format and classes": ". {\n    log a.org b.org {\n        class denial error\n    }\n    whoami\n}\n",
    "errors consolidate": '. {\n    errors {\n        consolidate 5m ".* i/o timeout$"\n    }\n    whoami\n}\n',
    "bind to an interface": ". {\n    bind lo\n    whoami\n}\n",
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepted(directory, case):
    code, out, err = validate(directory, ACCEPTED[case])
    assert code == 0, err
    assert err == ""


def test_validate_touches_nothing(directory, etcd, nodes):
    """Neither etcd nor the port, which another process holds."""
    text = corefile(etcd.endpoint, limit=1).replace(". {", ".:%d {", 1)
    node = nodes.make("", port=0)
    text = text % node.port
    with open(node.corefile_path, "w", encoding="utf-8") as file:
        file.write(text)
    node.start().wait_owns(etcd)
    before = etcd.pairs(), etcd.leases()
    code, _, err = validate(directory, text)
    assert code == 0, err
    assert (etcd.pairs(), etcd.leases()) == before


# --- what it means ---

def whoami_answers(node, name, **where):
    response = ask(node, name, **where)
    return rcode(response) == "NOERROR" and bool(response.additional)


def test_the_longest_zone_wins(etcd, nodes):
    text = """
tf.local {
    idetcd {
        endpoint %s
        pattern worker{{.ID}}.tf.local.
        address 192.0.2.7
    }
}
sub.TF.local. {
    whoami
}
local {
}
example.org {
    whoami
}
""" % etcd.endpoint
    node = nodes.start(text)
    wait_resolves([node], "worker1.tf.local.", "192.0.2.7")
    assert answers(node, "WORKER1.tf.LOCAL.") == ["192.0.2.7"]
    assert_nxdomain(ask(node, "nobody.tf.local."), "tf.local.")
    assert whoami_answers(node, "sub.tf.local.")
    assert whoami_answers(node, "x.y.SUB.tf.local.")
    assert rcode(ask(node, "xsub.tf.local.")) == "NXDOMAIN", "a zone ends at a label"
    assert rcode(ask(node, "other.local.")) == "REFUSED", "an empty block refuses"
    assert whoami_answers(node, "www.example.org.")
    assert rcode(ask(node, "org.")) == "REFUSED"
    assert rcode(ask(node, ".")) == "REFUSED"


def test_blocks_on_their_own_ports(nodes, free_port):
    first, second = free_port(), free_port()
    text = f"a.org:{first} {{\n    whoami\n}}\nb.org:{second}, c.org:{first} {{\n    whoami\n}}\n"
    node = nodes.make(text, port=None).launch()
    node.wait_answers(port=first)
    node.wait_answers(port=second)
    for port, zones in ((first, {"a.org.", "c.org."}), (second, {"b.org."})):
        for zone in ("a.org.", "b.org.", "c.org."):
            for tcp in (False, True):
                assert whoami_answers(node, zone, port=port, tcp=tcp) == (zone in zones)
                assert rcode(ask(node, zone, port=port, tcp=tcp)) == ("NOERROR" if zone in zones else "REFUSED")


def test_a_reverse_zone(nodes):
    node = nodes.start("10.0.0.0/8 {\n    whoami\n}\n")
    assert whoami_answers(node, "4.3.2.10.in-addr.arpa.")
    assert rcode(ask(node, "4.3.2.11.in-addr.arpa.")) == "REFUSED"


def test_environment(etcd, nodes):
    text = """{$ZONE} {
    idetcd {
        endpoint {%ENDPOINT%}
        pattern {$PREFIX}{{.ID}}.tf.local.
        address {$UNSET}192.0.2.7
    }
}
"""
    node = nodes.make(text)
    node.start(env={"ZONE": "tf.local", "ENDPOINT": etcd.endpoint, "PREFIX": "env"})
    wait_resolves([node], "env1.tf.local.", "192.0.2.7")


def test_a_value_from_the_environment_is_one_token(directory):
    text = ". {\n    {$DIRECTIVE}\n}\n"
    code, _, err = validate(directory, text, env={"DIRECTIVE": "log whoami"})
    assert code == 1 and "Unknown directive 'log whoami'" in err
    assert validate(directory, text, env={"DIRECTIVE": "whoami"})[0] == 0


def test_snippets_and_imports(directory, nodes):
    os.mkdir(os.path.join(directory, "conf.d"))
    for zone in ("a", "b"):
        with open(os.path.join(directory, "conf.d", f"{zone}.conf"), "w", encoding="utf-8") as file:
            # Relative to this file, not to where the server was started.
            file.write(f"{zone}.org {{\n    import ../common\n}}\n")
    with open(os.path.join(directory, "common"), "w", encoding="utf-8") as file:
        file.write("whoami\n")
    text = "(who) {\n    whoami\n}\nimport conf.d/*.conf\nc.org {\n    import who\n}\n"
    node = nodes.start(text)
    for zone in ("a", "b", "c"):
        assert whoami_answers(node, f"{zone}.org.")


def test_a_glob_that_matches_nothing_is_a_warning(nodes):
    node = nodes.start("import none-*.conf\n. {\n    whoami\n    import nothing/*.conf\n}\n")
    assert whoami_answers(node, "example.org.")
    wait_until(lambda: "WARNING" in node.out() + node.err(), 5, lambda: f"a warning\n{node.logs()}")


def test_directives_run_in_a_fixed_order(etcd, nodes):
    """whoami stands first in the file, and last in the chain."""
    text = """. {
    whoami
    idetcd {
        endpoint %s
        pattern worker{{.ID}}.tf.local.
        address 192.0.2.7
    }
    errors
}
""" % etcd.endpoint
    node = nodes.start(text)
    wait_resolves([node], "worker1.tf.local.", "192.0.2.7")
    assert whoami_answers(node, "example.org.")


def test_whoami_says_who_asks(nodes):
    node = nodes.start(". {\n    whoami\n}\n")
    for host, rdtype, kind in (("127.0.0.1", "A", "udp"), ("::1", "AAAA", "udp"), ("127.0.0.1", "A", "tcp"), ("::1", "AAAA", "tcp")):
        response = ask(node, "Example.org.", host=host, tcp=kind == "tcp")
        assert rcode(response) == "NOERROR" and not response.answer
        found = {dns.rdatatype.to_text(rrset.rdtype): (rrset.name.to_text().lower(), rrset[0]) for rrset in response.additional}
        assert found[rdtype] == ("example.org.", found[rdtype][1])
        assert found[rdtype][1].address == host
        owner, srv = found["SRV"]
        assert owner == f"_{kind}.example.org."
        assert srv.port > 0 and srv.target.to_text() == "."


def test_whoami_with_the_longest_name(nodes):
    """`_udp.` does not fit before it; something orderly comes back all the same."""
    node = nodes.start(". {\n    whoami\n}\n")
    for last in (60, 61, 57, 52):
        name = ".".join(["x" * 63, "y" * 63, "z" * 63, "w" * last]) + "."
        for tcp in (False, True):
            assert rcode(ask(node, name, tcp=tcp)) in ("NOERROR", "SERVFAIL")
