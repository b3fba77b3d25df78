"""Two things measured in turn: the ratio, its interval, and how long to go on.

Each pair is one slice of the server and one of its reference, in random order, both after a part that is not counted. What
else the machine does meets both, so the ratio of a pair moves far less than either rate; and the time that server or load
wait for their processors, because others use them, is taken off each rate (load.cc). What is reported is the median of the
ratios, with the interval that holds the true median with a probability of 95 % or a little more: from the k-th lowest to the
k-th highest ratio, where k follows from the binomial distribution alone, whatever the ratios' own distribution is.
(Measuring on until the interval is narrow makes it too narrow now and then: it is looked at once every 20 pairs only.)"""

import collections
import json
import math
import signal
import statistics
import subprocess

CONFIDENCE = 0.95
WIDE = 0.04  # to each side, as a share of the median
LOOK_EVERY = 20

# least, most: pairs. narrow: to each side, a share of the median, at which it is enough. Two runs differ by less than 3 % with
# 95 % where each has 2 %. slice, settle: in ms, the second a part of the first.
Plan = collections.namedtuple("Plan", "least most narrow slice settle")


class Interval(collections.namedtuple("Interval", "median low high count")):
    @property
    def half_width(self):
        """As a share of the median."""
        return (self.high - self.low) / 2 / self.median if self.median else math.inf

    @property
    def wide(self):
        return not self.half_width <= WIDE


def median_interval(values):
    """The median, and the interval of order statistics around it that has at least CONFIDENCE; with 5 values or fewer no
    interval has, and it is without end. REQUIRES: values."""
    ordered, count = sorted(values), len(values)
    k = rank(count)
    low, high = (ordered[k - 1], ordered[count - k]) if k else (-math.inf, math.inf)
    return Interval(statistics.median(ordered), low, high, count)


def rank(count):
    """The largest k for which the k-th lowest to the k-th highest of `count` values hold the median with CONFIDENCE; 0: none.
    Fewer than k values lie below the median with the probability that `count` throws of a coin show fewer than k heads."""
    k, outside = 0, 0
    while True:
        outside += math.comb(count, k)
        if 2 * outside > (1 - CONFIDENCE) * 2 ** count:
            return k
        k += 1


def measure(argv, ratio, plan):
    """Runs a program that prints a line of JSON a pair, {"server": …, "reference": …}, until SIGTERM; ends it when the interval
    of the ratios is narrow enough. Returns the pairs and what else it printed. `ratio` makes a number of a pair, or None of one
    that has none: a slice in which neither program ran."""
    argv = [*map(str, argv), "--pairs", str(plan.most), "--slice-ms", str(plan.slice), "--settle-ms", str(plan.settle)]
    pairs, rest, ratios, ended = [], [], [], False
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stdout:
                pair = json.loads(line)
                if "server" not in pair:
                    rest.append(pair)
                    continue
                pairs.append(pair)
                value = ratio(pair)
                if value is not None:
                    ratios.append(value)
                if not ended and len(pairs) < plan.most and is_enough(ratios, plan):
                    ended = True
                    process.send_signal(signal.SIGTERM)
        except BaseException:
            process.kill()
            raise
    if process.returncode not in (0, 3) or not ratios:  # 3: an answer was wrong, which the pairs say too
        raise RuntimeError(f"{' '.join(argv)} ended with {process.returncode} after {len(pairs)} pairs")
    return pairs, rest


def is_enough(ratios, plan):
    count = len(ratios)
    if count < plan.least or (count - plan.least) % LOOK_EVERY:
        return False
    return median_interval(ratios).half_width <= plan.narrow


def by(field):
    """The ratio of a pair: of this field."""
    def ratio(pair):
        server, reference = pair["server"].get(field, 0), pair["reference"].get(field, 0)
        return server / reference if server and reference else None
    return ratio


def per(field):
    """The same, turned round: of what is used."""
    straight = by(field)

    def ratio(pair):
        value = straight(pair)
        return 1 / value if value else None
    return ratio


def summarize(server, pairs, ratio, unit):
    """The row of a server: its ratio with the interval, and the medians of what else its slices say."""
    values = [value for value in map(ratio, pairs) if value is not None]
    row = {"server": server, "unit": unit, **as_fields("ratio", values)}
    row.update(pairs=len(values), wide=median_interval(values).wide)
    used = [value for value in map(per("cpu_us"), pairs) if value is not None]
    if used:
        row["by_cpu"] = as_fields("ratio", used)
        row["reference_cpu_us"] = statistics.median(pair["reference"]["cpu_us"] for pair in pairs)
    row.update(of_slices([pair["server"] for pair in pairs]))
    # The server's share of its core while the reference has its slice: it should sleep.
    aside = [pair["reference"]["aside"] for pair in pairs if "aside" in pair["reference"]]
    if aside:
        row["idle_busy"] = statistics.median(aside)
    row["discarded"] = len(pairs) - len(values)
    row["ratios"] = [round(value, 4) for value in values]
    return row


def as_fields(name, values):
    interval = median_interval(values)
    return {name: interval.median, "low": interval.low, "high": interval.high}


def of_slices(slices):
    row = {field: statistics.median(part[field] for part in slices)
           for field in ("rate", "wall_rate", "waited", "cpu_us", "busy", "p50_us", "p99_us", "p999_us") if field in slices[0]}
    for field in ("wrong", "lost"):
        row[field] = sum(part.get(field, 0) for part in slices)
    return row
