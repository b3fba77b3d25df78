"""The alerts of src/deploy: promtool finds them well formed, each fires for what it is about, alone, and none for a node that is
well."""

import json
import os
import re
import shutil
import subprocess

import yaml

from harness.node import ROOT
from harness.processes import TIME_FACTOR

ALERTS = os.path.join(ROOT, "src", "deploy", "prometheus", "alerts.yaml")
NODE = 'job="idetcd",instance="n1:9153"'
NAMES = NODE + ',pattern="worker{{.ID}}.tf.internal."'
STORE = NAMES + ',store="endpoint"'

# Of a node that is well: labels and value.
WELL = {
    "up": (NODE, 1),
    "process_start_time_seconds": (NODE, 1700000000),
    "process_open_fds": (NODE, 40),
    "process_max_fds": (NODE, 65536),
    "idetcd_descriptors": (NODE, 10),
    "idetcd_max_descriptors": (NODE, 57000),
    "coredns_health_request_failures_total": (NODE, 0),
    "coredns_reload_failed_total": (NODE, 0),
    "idetcd_log_lines_dropped_total": (NODE, 0),
    "idetcd_save_failures_total": (STORE, 0),
    "idetcd_owned": (NAMES, 1),
    "idetcd_claim_requests_total": (STORE, 4),
    "idetcd_lease_remaining_seconds": (NAMES, 20),
    "idetcd_names_fresh": (NAMES, 1),
    "idetcd_watch_connected": (STORE, 1),
    "idetcd_watch_lag_revisions": (STORE, 0),
    "idetcd_etcd_endpoint_unused": (STORE + ',endpoint="192.0.2.1:2379"', 0),
    "idetcd_peers_voters_reached": (NODE, 1),
    "idetcd_claims_refused_total": (STORE, 0),
    "idetcd_spare": (STORE, 0),
    "idetcd_conflicts_total": (STORE, 0),
    "idetcd_clones_total": (STORE, 0),
    "idetcd_mass_deletions_total": (STORE, 0),
    "idetcd_repaired_names_total": (STORE, 0),
    "idetcd_drained": (NAMES, 0),
    "idetcd_check_failed": (NAMES, 0),
    "idetcd_check_out": (NAMES, 0),
    "idetcd_moving": (NAMES, 0),
    "idetcd_moved": (NAMES, 0),
    "idetcd_queries_dropped_total": (NODE + ',worker="0",reason="receive_buffer"', 0),
    "idetcd_forward_queries_total": (NODE, 0),
    "idetcd_forward_failures_total": (NODE, 0),
    "coredns_forward_healthcheck_broken_total": (NODE, 0),
    "idetcd_xdp_attached": (NODE, 1),
    "idetcd_xdp_left_out_total": (NODE, 0),
}


def since(minutes, value):
    return [value] * minutes


RISEN = since(3, 1)
ASKED = list(range(0, 6000, 100))  # a counter in the last hour

# Each alert, and how the node's last minutes differ from that when it fires. With what is below, none fires.
SICK = [
    ("IdetcdDown", {"up": since(5, 0)}),
    ("IdetcdRestarted", {"process_start_time_seconds": since(3, 1700017800)}),
    ("IdetcdUnresponsive", {"coredns_health_request_failures_total": RISEN}),
    ("IdetcdReloadFailed", {"coredns_reload_failed_total": RISEN}),
    ("IdetcdDescriptorsScarce", {"idetcd_descriptors": since(5, 56000)}),
    ("IdetcdDescriptorsScarce", {"process_open_fds": since(5, 65000)}),
    ("IdetcdLogLinesLost", {"idetcd_log_lines_dropped_total": RISEN}),
    ("IdetcdStateNotSaved", {"idetcd_save_failures_total": RISEN}),
    ("IdetcdNoName", {"idetcd_owned": since(5, 0), "idetcd_lease_remaining_seconds": since(5, 0)}),
    ("IdetcdLeaseRunsOut", {"idetcd_lease_remaining_seconds": since(1, 6)}),
    ("IdetcdNamesStale", {"idetcd_names_fresh": since(5, 0)}),
    ("IdetcdWatchDisconnected", {"idetcd_watch_connected": since(5, 0)}),
    ("IdetcdWatchLags", {"idetcd_watch_lag_revisions": since(30, 4)}),
    ("IdetcdEndpointUnused", {"idetcd_etcd_endpoint_unused": since(5, 1)}),
    ("IdetcdVotersAway", {"idetcd_peers_voters_reached": since(5, 0)}),
    ("IdetcdNamesUsedUp", {"idetcd_claims_refused_total": RISEN}),
    ("IdetcdNameTakenByOthers", {"idetcd_conflicts_total": RISEN}),
    ("IdetcdMachineCopied", {"idetcd_clones_total": RISEN}),
    ("IdetcdMassDeletion", {"idetcd_mass_deletions_total": RISEN}),
    ("IdetcdNamesRepaired", {"idetcd_repaired_names_total": RISEN}),
    ("IdetcdDrained", {"idetcd_drained": since(250, 1)}),
    ("IdetcdCheckFailed", {"idetcd_check_failed": since(10, 1), "idetcd_check_out": since(10, 1)}),
    ("IdetcdSickNodeServes", {"idetcd_check_failed": since(10, 1)}),
    ("IdetcdMoveUnfinished", {"idetcd_moving": since(70, 1), "idetcd_moved": since(69, 1)}),
    ("IdetcdMoveStuck", {"idetcd_moving": since(5, 1)}),
    ("IdetcdQueriesLost", {"idetcd_queries_dropped_total": RISEN}),
    ("IdetcdUpstreamsFail", {"idetcd_forward_queries_total": ASKED, "idetcd_forward_failures_total": [count / 50 for count in ASKED]}),
    ("IdetcdUpstreamsDown", {"coredns_forward_healthcheck_broken_total": RISEN}),
    ("IdetcdXdpDetached", {"idetcd_xdp_attached": since(5, 0)}),
    ("IdetcdXdpFull", {"idetcd_xdp_left_out_total": RISEN}),
]
STILL_WELL = [
    {},
    # A node that observes.
    {"idetcd_owned": since(20, 0), "idetcd_lease_remaining_seconds": since(20, 0), "idetcd_claim_requests_total": since(20, 0)},
    {"idetcd_owned": since(20, 0), "idetcd_lease_remaining_seconds": since(20, 0), "idetcd_claim_requests_total": since(20, 0),
     "idetcd_moving": since(20, 1)},
    # A spare.
    {"idetcd_owned": since(20, 0), "idetcd_lease_remaining_seconds": since(20, 0), "idetcd_spare": since(20, 1)},
    {"idetcd_lease_remaining_seconds": [13, 20, 7]},
    {"idetcd_lease_remaining_seconds": since(1, 0), "idetcd_owned": since(1, 0)},
    {"idetcd_watch_lag_revisions": [5, 0] * 15},
    {"idetcd_drained": since(60, 1)},
    {"idetcd_moving": since(50, 1), "idetcd_moved": since(50, 1)},
    {"idetcd_forward_queries_total": ASKED, "idetcd_forward_failures_total": [count / 200 for count in ASKED]},
]
# A sick node that serves has a check that fails.
ALSO = {"IdetcdSickNodeServes": ["IdetcdCheckFailed"]}


def rules():
    with open(ALERTS, encoding="ascii") as file:
        return {rule["alert"]: rule for group in yaml.safe_load(file)["groups"] for rule in group["rules"]}


def scenario(different, alerts):
    """A test for promtool: at the end of these minutes, and some before, just these alerts fire."""
    minutes = 20 + max(map(len, different.values()), default=0)
    inputs = []
    for name, (labels, value) in WELL.items():
        last = different.get(name, [])
        values = since(minutes - len(last), value) + last
        inputs.append({"series": f"{name}{{{labels}}}", "values": " ".join(map(str, values))})
    assert different.keys() <= WELL.keys()
    return {"interval": "1m", "input_series": inputs, "promql_expr_test": [{
        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})', "eval_time": f"{minutes - 1}m",
        "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in alerts]}]}


def test_each_alert_fires_for_what_it_is_about(directory):
    assert {alert for alert, _ in SICK} == rules().keys()
    tests = [scenario(different, sorted([alert, *ALSO.get(alert, [])])) for alert, different in SICK]
    tests += [scenario(different, []) for different in STILL_WELL]
    path = os.path.join(directory, "test.yaml")
    with open(path, "w", encoding="ascii") as file:
        json.dump({"rule_files": [ALERTS], "evaluation_interval": "1m", "tests": tests}, file)
    for command in (["check", "rules", "--lint-fatal", ALERTS], ["test", "rules", path]):
        result = subprocess.run(["promtool", *command], check=False, capture_output=True, text=True, timeout=60 * TIME_FACTOR)
        assert result.returncode == 0, result.stdout + result.stderr


def test_the_page_has_prometheus_read_them(directory):
    with open(os.path.join(ROOT, "src", "docs", "operations.md"), encoding="utf-8") as file:
        [config] = re.findall(r"^```yaml\n(rule_files: .*?)^```$", file.read(), re.MULTILINE | re.DOTALL)
    path = os.path.join(directory, "prometheus.yaml")
    with open(path, "w", encoding="ascii") as file:
        file.write(config)
    shutil.copy(ALERTS, directory)
    output = subprocess.run(["promtool", "check", "config", path], check=True, capture_output=True, text=True, timeout=20 * TIME_FACTOR).stdout
    assert f"{len(rules())} rules found" in output


def test_each_alert_says_what_to_do():
    for alert, rule in rules().items():
        assert rule["labels"]["severity"] in ("critical", "warning"), alert
        assert rule["annotations"].keys() == {"summary", "description"}, alert
