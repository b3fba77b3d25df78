"""Whether a soak has held: pure functions over what was recorded."""

import dataclasses
import itertools
import math

_CONFIDENCE = 1.96  # standard deviations: 95 %
BUCKETS = 12  # of memory, over which the slope is taken


@dataclasses.dataclass
class Bounds:
    bytes_per_query: float = 50.0  # how much memory may grow with the load
    growth_kib: float = 4096.0  # how much it may grow in all while it is judged
    kib_per_minute: float | None = None  # in place of the two above
    unanswered: float = 0.002  # share of all good queries
    failed: float = 0.001  # share of those to good upstreams, while at least one of these can be reached
    busy: float = 1.0  # such failures count in seconds in which threads waited less than so long for a processor, all together
    stall_seconds: float = 2.0  # for an answer from memory
    descriptors: int = 0  # at rest, more than at rest before


@dataclasses.dataclass
class Slope:
    """KiB a minute."""

    estimate: float
    low: float
    high: float

    def __str__(self):
        return f"{self.estimate:+.0f} KiB/min (95 %: {self.low:+.0f} to {self.high:+.0f})"


def theil_sen(points):
    """The median of the slopes of all pairs of (x, y), and Sen's interval of it, which holds the true slope with 95 %: (slope,
    low, high). One outlier in four changes little. REQUIRES: three points at least, of different x."""
    slopes = sorted((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in itertools.combinations(sorted(points), 2))
    count = len(points)
    spread = _CONFIDENCE * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)  # of Kendall's S, without ties
    low = max(0, round((len(slopes) - spread) / 2))
    high = min(len(slopes) - 1, round((len(slopes) + spread) / 2))
    return _median(slopes), slopes[low], slopes[high]


def _median(ordered):
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def memory_slope(samples):
    """Of the anonymous memory. The least of each twelfth of the time counts: what is in use for a moment (a connection's
    buffers, two configurations during a reload) is no growth. REQUIRES: samples of 12 s at least."""
    first, last = samples[0].at, samples[-1].at
    width = (last - first) / BUCKETS
    buckets = {}
    for sample in samples:
        number = min(BUCKETS - 1, int((sample.at - first) / width))
        buckets[number] = min(buckets.get(number, math.inf), sample.anonymous)
    return Slope(*(60 * slope for slope in theil_sen([((number + 0.5) * width, least) for number, least in buckets.items()])))


def memory_bound(bounds, rate, minutes):
    """KiB a minute: what a leak with every query would show, and no more in all than noise would."""
    if bounds.kib_per_minute is not None:
        return bounds.kib_per_minute
    return min(bounds.bytes_per_query * rate * 60 / 1024, bounds.growth_kib / minutes)


def judge_memory(samples, rate, bounds):
    """(facts, problems). `samples`: of the time that is judged, `rate`: queries a second in it."""
    minutes = (samples[-1].at - samples[0].at) / 60
    slope, bound = memory_slope(samples), memory_bound(bounds, rate, minutes)
    fact = f"memory: {slope}, at most {bound:.0f}, over the last {minutes:.1f} min"
    # What is used for the first time, by a burst larger than those before, is a step, and makes the interval wide; a leak does not.
    if slope.low <= bound:
        return [fact], []
    per_query = f", {slope.estimate * 1024 / 60 / rate:.0f} bytes a query" if rate else ""
    return [fact], [f"memory grows by {slope}{per_query}; at most {bound:.0f} KiB/min are allowed"]


def _total(seconds, field, kinds=None):
    return sum(tally[field] for second in seconds for kind, tally in second["tallies"].items() if kinds is None or kind in kinds)


def _share(part, whole):
    return part / whole if whole else 0.0


AROUND = 1.5  # seconds before and after


def waiting(samples):
    """A function: for how many seconds threads of the process got no processor that they wanted, from AROUND before `begin` to
    AROUND after `end`."""
    def waited(begin, end):
        around = [sample.waited for sample in samples if begin - AROUND <= sample.at <= end + AROUND]
        # A thread that has ended takes its time with it.
        return sum(max(0.0, later - earlier) for earlier, later in zip(around, around[1:]))
    return waited


def judge_answers(seconds, upstream_kinds, troubled, waited, bounds, wanted_rate):
    """(facts, problems). `seconds`: what the load has printed; `troubled(begin)`: whether no good upstream could be reached
    in that second; `waited(begin, end)`: as from waiting()."""
    problems = [text for second in seconds for text in second["wrong"]]
    asked, wrong = _total(seconds, "asked"), _total(seconds, "wrong")
    if wrong > len(problems):
        problems.append(f"{wrong} wrong answers in all")
    unanswered = _share(_total(seconds, "unanswered"), asked)
    calm = [second for second in seconds if not troubled(second["begin"]) and
            waited(second["begin"], second["begin"] + 1) < bounds.busy * (1 + 2 * AROUND)]
    forwarded = _total(calm, "asked", upstream_kinds)
    failed = _share(_total(calm, "failed", upstream_kinds), forwarded)
    stalled = max((second["stalled"] - waited(second["begin"], second["begin"] + 1 + second["stalled"])
                   for second in seconds), default=0.0)
    # The first and the last second are no whole ones.
    mute = [second["begin"] for second in seconds[1:-1] if not _total([second], "right")]
    rate = asked / len(seconds) if seconds else 0
    facts = [
        f"answers: {asked} queries, {wrong} wrong, {unanswered:.4%} unanswered (at most {bounds.unanswered:.4%})",
        f"forwards: {forwarded} queries while an upstream and a processor were there, {failed:.4%} failed (at most "
        f"{bounds.failed:.4%})",
        f"an answer from memory took {max(0.0, stalled) * 1000:.0f} ms at most beside waiting for a processor (bound: "
        f"{bounds.stall_seconds * 1000:.0f} ms)"]
    if unanswered > bounds.unanswered:
        problems.append(f"{unanswered:.3%} of all queries were not answered; at most {bounds.unanswered:.3%} are allowed")
    if failed > bounds.failed:
        problems.append(f"{failed:.3%} of the forwarded queries failed while an upstream could be reached; at most "
                        f"{bounds.failed:.3%} are allowed")
    if stalled > bounds.stall_seconds or mute:
        problems.append(f"stalled: {len(mute)} seconds without a right answer, one that came after {stalled:.1f} s")
    if rate < wanted_rate / 4:
        problems.append(f"the load came to {rate:.0f} queries a second of {wanted_rate}: this proves nothing")
    return facts, problems


def judge_descriptors(before, after, new, bounds):
    """(facts, problems). Samples at rest, and a Counter of what is open that was not before."""
    fact = f"descriptors at rest: {before.descriptors} before, {after.descriptors} afterwards"
    if after.descriptors <= before.descriptors + bounds.descriptors:
        return [fact], []
    return [fact], [f"{fact}; new: " + "; ".join(f"{count} {what}" for what, count in new.most_common(10))]


FORBIDDEN = ("AddressSanitizer", "ThreadSanitizer", "LeakSanitizer", "MemorySanitizer", "runtime error:", "terminate called",
             "Assertion", "assertion", "double free", "corrupted", "stack smashing", "Segmentation fault")


def forbidden_lines(log):
    return [f"the log says: {line}" for line in log.splitlines() if any(mark in line for mark in FORBIDDEN)]


# --- the table ---

COLUMNS = ["from", "q/s", "right %", "failed", "lost", "wrong", "p50 ms", "p99 ms", "forwarded", "anon KiB", "RSS KiB",
           "PSS KiB", "fds", "threads", "waited"]


def table(seconds, samples, rows=10):
    """Lines of text: `rows` intervals of the same length. Memory is the median of the interval, latencies that of its seconds;
    `waited`: how much of the time threads had no processor, on a busy machine more than all of it."""
    if not seconds or not samples:
        return []
    first, last = seconds[0]["begin"], seconds[-1]["begin"] + 1
    width = max(1.0, (last - first) / rows)
    lines = [COLUMNS]
    for number in range(math.ceil((last - first) / width)):
        begin, end = first + number * width, first + (number + 1) * width
        chosen = [second for second in seconds if begin <= second["begin"] < end]
        held = [sample for sample in samples if begin <= sample.at < end]
        if chosen and held:
            lines.append(_row(begin - first, chosen, held))
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    return ["  ".join(cell.rjust(size) for cell, size in zip(line, widths)) for line in lines]


def _row(begin, seconds, samples):
    asked = _total(seconds, "asked")

    def latency(key, index):
        found = sorted(second[key][index] for second in seconds if second[key])
        return f"{_median(found) * 1000:.2f}" if found else "-"

    def middle(field):
        return f"{_median(sorted(getattr(sample, field) for sample in samples)):.0f}"
    return [f"{begin:.0f} s", f"{asked / len(seconds):.0f}", f"{100 * _share(_total(seconds, 'right'), asked):.3f}",
            *(str(_total(seconds, field)) for field in ("failed", "unanswered", "wrong")),
            latency("local", 0), latency("local", 1), latency("forwarded", 1),
            *(middle(field) for field in ("anonymous", "rss", "pss", "descriptors", "threads")),
            f"{(samples[-1].waited - samples[0].waited) / max(1, len(samples) - 1):.1%}"]
