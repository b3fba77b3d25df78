"""Corefiles that many tests share."""

import math

from harness.processes import TIME_FACTOR

SHORT_LEASE = 5 * math.ceil(TIME_FACTOR)  # seconds: a node that hardly runs keeps its name for as long

CLUSTER = """. {{
    idetcd {{
        endpoint {endpoint}
        limit {limit}
        pattern {pattern}
        lease {lease}s
{options}    }}
{directives}}}
"""


def corefile(endpoint, pattern="worker{{.ID}}.tf.local.", limit=10, lease=SHORT_LEASE, options=(), directives=()):
    """The seed's Corefile with a short lease. `options` go into the idetcd block, `directives` beside it."""
    return CLUSTER.format(
        endpoint=endpoint, pattern=pattern, limit=limit, lease=lease,
        options="".join(f"        {option}\n" for option in options),
        directives="".join(f"    {directive}\n" for directive in directives))
