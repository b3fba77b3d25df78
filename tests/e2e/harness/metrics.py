"""What a node shows to Prometheus, and a Prometheus that scrapes nodes."""

import json
import os
import re
import subprocess
import urllib.parse
import urllib.request

from . import ports
from .processes import Process, wait_until


def scrape(port, host="127.0.0.1"):
    """The text of /metrics."""
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=5) as response:
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return response.read().decode()


class Metrics:
    """One scrape, taken apart."""

    SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
    LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')

    def __init__(self, text):
        self.text = text
        self.samples = []  # (name, labels, value)
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            name, labels, value = self.SAMPLE.fullmatch(line).groups()
            self.samples.append((name, dict(self.LABEL.findall(labels or "")), float(value)))

    @classmethod
    def of(cls, port, **where):
        return cls(scrape(port, **where))

    def sum(self, name, /, **labels):
        """Of the samples of `name` that have these labels; None: there is none."""
        found = [value for sample, having, value in self.samples
                 if sample == name and labels.items() <= having.items()]
        return sum(found) if found else None

    def labels(self, name):
        """The names of the labels of a family, in order."""
        return next((tuple(having) for sample, having, _ in self.samples if sample == name), None)

    def names(self):
        return {name for name, _, _ in self.samples}


def promtool_problems(text):
    """What `promtool check metrics` finds wrong."""
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    return checked.stdout + checked.stderr if checked.returncode or checked.stderr else ""


class Prometheus(Process):
    """A real one, that scrapes `targets` each second."""

    def __init__(self, directory, targets):
        super().__init__("prometheus", directory)
        self.port = ports.free_port()
        self.config = os.path.join(directory, "prometheus.yml")
        with open(self.config, "w", encoding="ascii") as file:
            json.dump({"global": {"scrape_interval": "1s"},
                       "scrape_configs": [{"job_name": "coredns", "static_configs": [{"targets": targets}]}]}, file)

    def launch(self):
        self.spawn(["prometheus", f"--config.file={self.config}",
                    f"--storage.tsdb.path={os.path.join(self.directory, 'tsdb')}",
                    f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn"])
        return self

    def query(self, expression):
        """The series of an instant query."""
        url = f"http://127.0.0.1:{self.port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(url, timeout=5) as response:
            answer = json.load(response)
        assert answer["status"] == "success", answer
        return answer["data"]["result"]

    def wait_series(self, expression, condition=bool, timeout=30):
        """Until the result of the query meets `condition`."""
        def found():
            try:
                result = self.query(expression)
            except OSError:  # it does not listen yet
                return None
            return (result,) if condition(result) else None
        return wait_until(found, timeout, lambda: f"{expression}\n{self.logs()}", interval=0.1)[0]

    def kill(self):
        super().kill()
        ports.release(self.port)
