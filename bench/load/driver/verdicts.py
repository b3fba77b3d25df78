"""What the rows of a run say of what is wanted, and of an earlier run."""

AGREE = 0.03  # two runs in a row, of one machine
SAME_MACHINE = 0.1


def figure(row):
    return row["ratio"] if "ratio" in row else row.get("value")


def judge(row):
    """"holds", "fails", or "unclear": the figure misses what is wanted, but its interval does not."""
    value = figure(row)
    low, high = row.get("low", value), row.get("high", value)
    if "near" in row:  # a share of the target, to each side
        below, above = row["target"] * (1 - row["near"]), row["target"] * (1 + row["near"])
        return "holds" if below <= value <= above else "unclear" if low <= above and high >= below else "fails"
    worst, best = (value, low) if row["less_is_better"] else (-value, -high)
    wanted = row["target"] if row["less_is_better"] else -row["target"]
    if worst <= wanted:
        return "holds"
    return "unclear" if best <= wanted else "fails"


def bound_of(row):
    if "near" in row:
        return f"within {row['near']:.0%} of"
    return "at most" if row["less_is_better"] else "at least"


def of_run(rows):
    """Pairs of (row, verdict), gates first."""
    judged = [(row, judge(row)) for row in rows if "target" in row]
    return sorted(judged, key=lambda pair: not pair[0]["gate"])


def as_text(judged, unmeasured):
    """Of every figure that has something to reach; `unmeasured`: the names of cases with a gate that have none."""
    lines = ["what must hold (a gate: the run fails if the interval misses it), and what is wanted:"]
    for row, verdict in judged:
        name = f"{row['case']}{', ' + row['query'] if 'query' in row else ''}"
        bound = bound_of(row)
        between = f" [{row['low']:.3f} {row['high']:.3f}]" if "low" in row else ""
        lines.append(f"  {verdict.upper() if verdict == 'fails' else verdict:8}{'gate  ' if row['gate'] else '      '}{name}: "
                     f"{figure(row):.3f}{between}, {bound} {row['target']:g} {row['unit']}")
    lines += [f"  FAILS   gate  {name}: not measured" for name in unmeasured]
    return "\n".join(lines)


def compare(rows, earlier):
    """Of the ratios that both runs have: (row, the earlier row, difference as a share)."""
    before = {(row["case"], row["server"]): row for row in earlier if row.get("ratio")}
    found = [(row, before[row["case"], row["server"]]) for row in rows
             if "ratio" in row and (row["case"], row["server"]) in before]
    return [(row, old, row["ratio"] / old["ratio"] - 1) for row, old in found]


def same_machine(row, old):
    """Whether the reference was as fast in both runs. Where others use the processors, queries pile up while the server waits,
    and it takes them in larger batches: the echo then needs less than half the time a query, and a server that takes one query
    a system call falls behind. That is no error of the measuring, but neither are the two ratios of one machine."""
    if not row.get("reference_cpu_us") or not old.get("reference_cpu_us"):
        return True
    return abs(row["reference_cpu_us"] / old["reference_cpu_us"] - 1) <= SAME_MACHINE


def disagree(differences):
    return any(abs(share) > AGREE and same_machine(row, old) for row, old, share in differences)


def comparison_as_text(differences):
    lines = [f"beside the earlier run (to agree: within {AGREE:.0%}):"]
    for row, old, share in differences:
        verdict = "agrees" if abs(share) <= AGREE else "DIFFERS" if same_machine(row, old) else "changed"
        notes = ["wide"] if row.get("wide") else []
        if not same_machine(row, old):
            notes.append(f"so has the machine: {old['reference_cpu_us']:.2f} µs a query of the reference, now "
                         f"{row['reference_cpu_us']:.2f}")
        lines.append(f"  {verdict:8} {row['case']}, {row['server']}: {row['ratio']:.3f}, {old['ratio']:.3f} before, {share:+.1%}"
                     f"{' (' + '; '.join(notes) + ')' if notes else ''}")
    return "\n".join(lines)
