"""The project's folder, and its test harness (processes, ports, etcd) made importable. Import this first."""

import os
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
