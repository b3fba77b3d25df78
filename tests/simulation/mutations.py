#!/usr/bin/python3 -B
"""Breaks the naming protocol, the founding of a cluster or the choice of its voters in one place at a time and asks whether the simulated world
notices (tools/simulate --mutations). Each mutation is a piece of src/ and what stands in its place; it must be there
exactly once, so a change of the code that it is about is noticed here. A copy of the tree in build/mutations is built again
and again: a mutation costs a file, two links and the seeds up to the first that notices.

--changed is for those whose file differs from REV (default: as for tools/test --changed), --markdown prints what the
README.md of naming has, then what those of founding and peers have. Their seeds are short: four times as many are run.

Some rules are a second line of defence: what they forbid, others forbid too. Their mutations say by what they are
covered; they need not be noticed, and are counted apart.

usage: mutations.py [--seeds N] [--only WORD] [--changed [REV]] [--markdown] [--list]
Prints a line for each, and ends with how many were caught; exit status 1 if one was not that nothing covers."""

import argparse
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from affected import find_base  # noqa: E402

TREE = ROOT / "build/mutations"
WORLDS = {"naming": [], "founding": ["--founding"], "peers": ["--membership"]}


@dataclass(frozen=True)
class Mutation:
    name: str
    file: str  # below src/
    old: str
    new: str
    covered: str = ""  # by what else; empty: by nothing
    first_seed: int = 1  # for what few schedules show
    nodes: int = 0  # for what few nodes do not show
    relay: int = 0  # one of so many nodes is a relay; 0: as the seed says

    @property
    def folder(self):
        """Of the world that it is tried in."""
        folder = self.file.split("/")[0]
        return folder if folder in WORLDS else "naming"

    @property
    def readme(self):
        return f"src/{self.folder}/README.md"


MUTATIONS = [
    # The claim.
    Mutation("no compare of the slot", "naming/claim.cc",
             """  transaction.require({.key = choice.name,
                       .target = back ? Compare::Target::kModRevision : Compare::Target::kCreateRevision,
                       .number = back ? line.own->mod_revision : 0});
""", ""),
    Mutation("no compare of the ticket", "naming/claim.cc",
             "  transaction.require({.key = ticket_, .target = Compare::Target::kModRevision, .number = line.ticket_revision});\n", ""),
    Mutation("a claim without an answer is not ruled out", "naming/claim.cc",
             "StoreResult<slots::QueueSnapshot> line = co_await enqueue(0, choice.name);", "StoreResult<slots::QueueSnapshot> line = co_await look();", first_seed=501),
    Mutation("a ticket that comes late stands beside its name", "naming/claim.cc",
             "for (const std::string& key : {incarnationKey(record_.id), unclear}) {",
             "for (const std::string& key : {unclear}) {"),
    Mutation("a ticket that is put again: the name that was claimed last is not looked at", "naming/claim.cc",
             "for (const std::string& key : {incarnationKey(record_.id), unclear}) {",
             "for (const std::string& key : {incarnationKey(record_.id)}) {\n    (void)unclear;", first_seed=501, nodes=50),
    Mutation("the ticket is kept", "naming/claim.cc",
             "  transaction.erase(ticket_);\n", ""),
    Mutation("no reading back after a lost answer", "naming/claim.cc",
             "if (!answer && answer.error().ambiguous()) {", "if (false) {"),
    Mutation("a lost answer counts as a claim", "naming/claim.cc",
             "if (!record || record->id != record_.id || kv.lease != lease_->id) continue;",
             "if (!record) continue;"),
    Mutation("a lease is left behind unrevoked", "naming/claim.cc",
             "if (!lives_on_) break;", "break;"),
    Mutation("a key of its own UUID is taken back without proof", "naming/claim.cc",
             "if (!predecessor || predecessor->cluster_id != lease_->cluster_id) return false;", "return true;"),
    Mutation("a name that is taken back keeps its token", "naming/claim.cc",
             "const int64_t said = back || raised ? least : 0;",
             "const int64_t said = raised ? least : back ? line.own->token : 0;"),
    Mutation("a store that was set back is not noticed by tokens", "naming/claim.cc",
             "const bool raised = line.set_back ||", "const bool raised ="),
    Mutation("a full cluster: it is not waited for", "naming/name_keeper.cc",
             "may_exit ? Claim::WhenFull::kGiveUp : Claim::WhenFull::kWait;",
             "may_exit || !ever_held_ ? Claim::WhenFull::kGiveUp : Claim::WhenFull::kWait;"),
    Mutation("what etcd refuses for want of space counts as not done", "naming/claim.cc",
             "if (!answer && answer.error().ambiguous()) {",
             "if (!answer && answer.error().ambiguous() && answer.error().code != ErrorCode::kNoSpace) {"),
    Mutation("a name is taken before its turn", "slots/slot_choice.cc",
             "if (!in_turn) return {Kind::kWait, 0, {}};",
             "if (!in_turn) return {Kind::kTake, line.taken.missing(0), pattern.render(line.taken.missing(0))};"),
    Mutation("the next free name but one", "slots/slot_choice.cc",
             "int64_t id = *in_turn;",
             "int64_t id = line.taken.missing(static_cast<size_t>(line.taken.missingUpTo(*in_turn)));\n"
             "  if (id > pattern.limit()) id = *in_turn;"),
    Mutation("who cannot use what is free holds up those behind", "naming/claim.cc",
             "std::clamp<int64_t>(its_own, 0, own)", "own"),
    Mutation("who has put a name is guessed", "slots/slot_choice.cc",
             "    guessed_ = true;\n", ""),
    Mutation("the lease is not kept while waiting", "naming/claim.cc",
             "if (context_.now() < lease_->sent_at + ttl / 3) co_return true;", "co_return true;"),
    Mutation("a reserved name counts as free", "naming/claim.cc",
             "  if (!id || bound_ || !line->taken.insert(*id)) return;\n  line->reserved.insert(*id);\n", "  (void)id;\n"),
    Mutation("no compare of the reservation", "naming/claim.cc",
             "  if (!back && !bound_) {\n", "  if (false) {\n",
             covered="what a node reads before it takes a name, at the revision of its ticket or after the last change"),
    Mutation("a reservation is not renewed", "naming/name_keeper.cc",
             "renewed = co_await claim_.renewReservation();", "renewed = true;"),
    Mutation("where names are reserved, one that has gone counts as free", "slots/slot_choice.cc",
             "    guessed_ = guessed_ || line_.reserving;\n", ""),
    # The name while it is held.
    Mutation("no margin", "naming/name_keeper.cc", "{ return ttl / 10; }", "{ return ttl * 0; }"),
    Mutation("a deadline that the incarnation does not bound", "naming/name_keeper.cc",
             "const BootClock::time_point proven = std::min(claim_.lease().sent_at, confirmation_.heldAsOf());",
             "const BootClock::time_point proven = claim_.lease().sent_at;",
             covered="the mirror's freshness, which the same read confirms, and the mark of a standstill"),
    Mutation("the deadline counts from the answer", "naming/name_keeper.cc",
             "    claim_.renewed(*renewed);\n",
             "    store::Lease late = *renewed;\n    late.sent_at = context_.now();\n    claim_.renewed(late);\n"),
    Mutation("a lease that is not found counts as kept", "naming/name_keeper.cc",
             "  if (renewed.error().code == ErrorCode::kLeaseNotFound) co_return false;\n", "",
             covered="the watch, which shows that the key has gone with the lease"),
    Mutation("a keepalive without an answer renews", "naming/name_keeper.cc",
             "  context_.counters.keepalive_failures.add();\n",
             "  context_.counters.keepalive_failures.add();\n"
             "  claim_.renewed({claim_.lease().id, claim_.lease().ttl, context_.now()});\n"),
    Mutation("a key that is gone counts as held", "naming/name_keeper.cc",
             "if (state == OwnKeyObserver::State::kGone) co_return Loss::kKeyGone;", ""),
    Mutation("a store that was set back: what the watch never shows is waited for", "naming/name_keeper.cc",
             "    if (unseen && confirmation_.slotIsGone()) co_return Loss::kKeyGone;\n", "    (void)unseen;\n",
             first_seed=1001, nodes=50),
    Mutation("another's key counts as one's own", "naming/own_key_observer.cc",
             "if (newest_->uuid != held.uuid) return State::kForeign;", ""),
    Mutation("a name is owned whatever the mirror shows", "naming/name_keeper.cc",
             "const bool seen = state == OwnKeyObserver::State::kOurs && !confirmation_.slotIsMissing();", "const bool seen = true;",
             first_seed=1001),
    Mutation("a frozen member: owned though the mirror is not fresh", "naming/name_keeper.cc",
             "if (evidence_->seen) until = fresh_until;",
             "(void)fresh_until;\n  if (evidence_->seen) until = evidence_->ownership.deadline;", first_seed=501),
    Mutation("a read of the key counts for ever", "naming/name_keeper.cc",
             "return std::min(deadline(), read + claim_.lease().ttl - marginOf(claim_.lease().ttl));",
             "return read == BootClock::time_point() ? read : deadline();"),
    Mutation("the key is not read between two watches", "naming/slot_reading.h",
             "return state_ != State::kTrusted || !is_watched_;", "return state_ != State::kTrusted;", first_seed=10001),
    # The machine, and copies of it.
    Mutation("a pause of the machine is not noticed", "naming/name_keeper.cc",
             "  if (confirmation_.standstill().since(evidence_->mark, confirmation_.tolerance())) return std::nullopt;\n"
             "  BootClock::time_point until;\n", "  BootClock::time_point until;\n"),
    Mutation("a clone: a foreign incarnation is overlooked", "naming/incarnation.cc",
             "  if (kv.lease == lease_) {\n    holder_ = Holder::kForeign;",
             "  if (kv.lease == lease_) {\n    holder_ = Holder::kOurs;"),
    Mutation("a clone: the incarnation is written whatever is there", "naming/incarnation.cc",
             "  if (there_) transaction->require({.key = key, .target = Compare::Target::kValue, .value = *there_});\n"
             "  if (!there_) transaction->require({.key = key, .target = Compare::Target::kCreateRevision, .number = 0});\n", ""),
    Mutation("a clone: a revision stands for the incarnation", "naming/incarnation.cc",
             "{.key = key, .target = Compare::Target::kValue, .value = *there_}",
             "{.key = key, .target = Compare::Target::kModRevision, .number = revision_}", first_seed=5501),
    Mutation("a clone: no new incarnation after a standstill", "naming/incarnation.cc",
             "  in_doubt_ = true;\n  renew();\n", ""),
    Mutation("a clone: what cannot be written leaves the incarnation in force", "naming/incarnation.cc",
             "return wanted_.empty() || (!may_write && !in_doubt_);", "return wanted_.empty() || !may_write;", first_seed=501),
    Mutation("a copied state: a second process with the UUID is left to the watch", "naming/incarnation.cc",
             "  holder_ = Holder::kDuplicateNodeId;\n  return HolderVerdict::kHolder;\n", "  return HolderVerdict::kNothing;\n"),
    # The mirror.
    Mutation("an event is skipped", "naming/replica.cc",
             "  for (const store::WatchEvent& event : events) {\n    counters_.events.add();\n",
             "  for (const store::WatchEvent& event : events) {\n    counters_.events.add();\n"
             "    if (counters_.events.value() % 5 == 0) continue;\n"),
    Mutation("deletions are skipped", "naming/replica.cc",
             "if (remove(event.kv.key, event.kv.mod_revision)) ++removed;", ""),
    Mutation("an old revision is taken", "records/record_store.cc",
             "  if (order == Order::kOlder) return Change::kOlder;\n", "", first_seed=501),
    Mutation("a watch is resumed one revision late", "naming/mirror.cc",
             "ranges.push_back({options_.ranges[i], resume[i] + 1});",
             "ranges.push_back({options_.ranges[i], resume[i] + 2});"),
    Mutation("caught up too early: any batch counts as all up to its revision", "naming/mirror.cc",
             "resume_[batch.range] = std::max(resume_[batch.range], batch.resume_revision - 1);",
             "resume_[batch.range] = std::max(resume_[batch.range], batch.revision);"),
    Mutation("caught up too early: what is read counts as delivered", "naming/table_freshness.cc",
             "while (!pending_.empty() && pending_.front().revision <= evidence) {",
             "(void)evidence;\n  while (!pending_.empty()) {"),
    Mutation("a relay: what is newest is asked of it", "naming/relayed_names.cc",
             "options.revision > 0 ? relay_ : std::nullopt",
             "options.revision >= 0 ? relay_ : std::nullopt", nodes=50, relay=3),
    Mutation("a relay: a reader begins with what comes next", "naming/name_cache.cc",
             "next_(cache_->first_change_),",
             "next_(cache_->first_change_ + cache_->changes_.size()),", nodes=50, relay=3),
    Mutation("a relay: a break of its watch is not passed on", "naming/name_cache.cc",
             "++breaks_;",
             "", nodes=50, relay=3),
    Mutation("a frozen member is not left", "naming/table_freshness.cc",
             "return state_ != State::kEmpty && beat_.isLacking(delivered_);",
             "return false;"),
    Mutation("a restore: another store is not noticed", "naming/mirror.cc",
             "  return confirmation_.isOtherStore() || state.revision < highest_ ||\n"
             "         (cluster_id_ != 0 && state.cluster_id != cluster_id_);",
             "  (void)state;\n  return false;"),
    Mutation("a restore: a comparison by number alone", "naming/mirror.cc",
             "if (!agrees || !has_newest ||", "if (",
             covered="the newest name, which is read behind each new watch"),
    Mutation("a comparison by the newest name alone", "naming/mirror.cc",
             " || surplus_ != other_keys_", "",
             covered="the comparison of all names, which comes soon where there are few"),
    Mutation("a restore: old revisions win over the new store's", "naming/replica.cc",
             "history == History::kSame ? Revisions::kGoOn : Revisions::kRestarted", "Revisions::kGoOn"),
    Mutation("names that have gone stay after a snapshot", "records/record_store.cc",
             "    unseen.emplace_back(std::string(entry.name().begin(), entry.name().end()), entry.mod_revision_);\n", ""),
    # The generation of the membership.
    Mutation("generation: what does not show in the names is not noted", "naming/generation_count.cc",
             "  return is_shown && offset_ == note.offset;\n",
             "  return (note.revision > 0 || size_ > 0) && offset_ == note.offset;\n"),
    Mutation("generation: a name that goes is no change", "naming/generation_count.cc",
             "if (id && erase(*id)) raise(revision);", "(void)revision;\n  if (id) erase(*id);"),
    Mutation("generation: a name that a snapshot lacks is no change", "naming/generation_count.cc",
             "  if (newest_ <= newest_before_) raise(vanished_at_);\n", "",
             covered="another node, which has seen it go, and notes it"),
    # Who is told.
    Mutation("hook order: a claim is reported without the loss before it", "naming/ownership_reporter.cc",
             "    reported_.reset();\n    listener_.lost();\n", "    reported_.reset();\n"),
    # The founding of a cluster.
    Mutation("founding: a quorum has one less", "founding/founding.h",
             "return expect_ / 2 + 1;", "return expect_ / 2;"),
    Mutation("founding: a promise is answered before it is durable", "founding/founding.cc",
             "answerWhenWritten(now, from, nonce, Promise{", "answer(now, from, nonce, Promise{"),
    Mutation("founding: an acceptance is answered before it is durable", "founding/founding.cc",
             "answerWhenWritten(now, from, nonce, Accepted{", "answer(now, from, nonce, Accepted{"),
    Mutation("founding: a lower ballot than the promised one is accepted", "founding/founding.cc",
             "if (ballot < record_.promised) {", "if (false) {"),
    Mutation("founding: no accepted value is adopted", "founding/founding.cc",
             "if (newest != nullptr) return newest->value;", ""),
    Mutation("founding: not the value of the highest ballot is adopted", "founding/founding.cc",
             "newest->ballot < promise.accepted->ballot", "promise.accepted->ballot < newest->ballot"),
    Mutation("founding: a decision is told before it is durable", "founding/founding.cc",
             "if (!record_.decided || written_ < version_) return;", "if (!record_.decided) return;"),
    Mutation("founding: who proposes does not wait for its own promise", "founding/founding.cc",
             "promised < quorum() || !attempt_->promises.contains(self_.member.uuid)", "promised < quorum()", first_seed=8001),
    Mutation("founding: no quiet time", "founding/founding.cc",
             "seen == expect_ || now >= last_news + kQuiet;", "now >= last_news;"),
    Mutation("founding: does not ask all addresses first", "founding/founding.cc",
             "if (!asked_all)", "if (!asked_all && expect_ == 0)"),
    Mutation("founding: does not wait for the names", "founding/hello.cc",
             "  if (names_until_ && now < *names_until_) return false;\n", ""),
    Mutation("founding: voters without a disk", "founding/founding.cc",
             "value.voters.size() < voters && fitnessToVote(*machine) == fittest", "value.voters.size() < voters"),
    Mutation("founding: voters without etcd", "founding/founding.cc",
             "(machine.can_vote ? 2 : 0) + ", ""),
    Mutation("founding: a dissolving cluster keeps its leases", "founding/founding.cc",
             "  record_.next = other;\n", "  record_.decided = other;\n"),
    Mutation("founding: a cluster without voters has others dissolve", "founding/elector.cc",
             "if (yields(*cluster, *other_) && response.connected)", "if (yields(*cluster, *other_))"),
    Mutation("founding: one clock says which cluster stays", "founding/message.cc",
             "return rank(one) > rank(other);", "return rank(one) != rank(other) && one.members.back() > other.members.back();"),
    # Who votes.
    Mutation("voters: the silent one goes before its successor has caught up", "peers/membership.cc",
             "  const Step end{step::Publish{publish(view, std::nullopt)}, \"\"};\n",
             "  const Step end{step::Publish{publish(view, std::nullopt)}, \"\"};\n"
             "  if (removed != nullptr && !removed->answers) return {step::Remove{removed->voter}, \"\"};\n"),
    Mutation("voters: a member goes though no majority would be left", "peers/membership.cc",
             "  return sizes.voters > 0 && sizes.isQuorum();", "  return sizes.voters > 0;",
             covered="those that are silent go first, so a member that answers is missed in no majority"),
    Mutation("voters: one that has lost its data is waited for", "peers/membership.cc",
             "    return machine.stands_by && (", "    return false && ("),
    Mutation("voters: a learner that does not come stays", "peers/membership.cc",
             "machine == nullptr || view.change_age >= kLearnerPatience ||", "machine == nullptr ||",
             covered="the end of the key of a machine that is gone"),
    Mutation("voters: a machine that is gone is chosen", "peers/membership.cc", " && !view.gone.contains(machine.address))", ")"),
    Mutation("voters: machines that are gone count", "peers/membership.cc", "view.machines.size() - view.gone.size()", "view.machines.size()"),
    Mutation("voters: one for two", "peers/membership.cc",
             "  while (wanted > 1 && wanted > voters + standbys) wanted -= 2;\n", "  (void)voters, (void)standbys;\n"),
]


def run(arguments, **options):
    return subprocess.run(arguments, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)


def prepare():
    """The copy, as the tree is. What has not changed since the last run is left alone, so that it is not built again."""
    listed = run(["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others",
                  "--exclude-standard"], check=True)
    names = {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}
    for old in [path for path in TREE.rglob("*") if path.is_file() and path.relative_to(TREE).parts[0] != "build"]:
        if str(old.relative_to(TREE)) not in names:
            old.unlink()
    for name in names:
        content = (ROOT / name).read_bytes()
        if not (TREE / name).exists() or (TREE / name).read_bytes() != content:
            (TREE / name).parent.mkdir(parents=True, exist_ok=True)
            (TREE / name).write_bytes(content)
            shutil.copymode(ROOT / name, TREE / name)
    # File by file: of each mutation only one is compiled.
    configured = run(["cmake", "--preset", "release", "-D", "CMAKE_UNITY_BUILD=OFF"], cwd=TREE)
    if configured.returncode != 0:
        sys.exit(configured.stdout)


def build():
    return run(["ninja", "-C", str(TREE / "build/release"), f"-j{os.cpu_count()}", "simulate"])


def simulate(seeds, folder, first=1, nodes=0, relay=0):
    size = [*(["--nodes", str(nodes)] if nodes else []), *(["--relay", str(relay)] if relay else [])]
    return run([str(TREE / "build/release/tests/simulation/simulate"), *WORLDS[folder], *size, "--seeds", str(seeds), "--from", str(first), "--quiet"])


def describe(outcome):
    """What a run that failed says of the seed and the property."""
    seed = re.search(r"^seed (\d+): .*VIOLATED$", outcome, re.MULTILINE)
    kind = re.search(r"VIOLATED\n([a-z]+): ", outcome)
    return (int(seed.group(1)) if seed else 0), (kind.group(1) if kind else "the process died")


def try_out(mutation, seeds):
    """Whether it was caught."""
    path = TREE / "src" / mutation.file
    whole = path.read_text()
    path.write_text(whole.replace(mutation.old, mutation.new))
    try:
        built = build()
        if built.returncode != 0:
            sys.exit(f"{mutation.name} does not compile:\n{built.stdout[-4000:]}")
        outcome = simulate(seeds, mutation.folder, mutation.first_seed, mutation.nodes, mutation.relay)
    finally:
        path.write_text(whole)
    if outcome.returncode == 0:
        if not mutation.covered:
            print(f"{'NOT CAUGHT':19}  {mutation.name}", flush=True)
        return False
    seed, kind = describe(outcome.stdout)
    print(f"seed {seed:<5} {kind:<8}  {mutation.name}", flush=True)
    return True


def print_covered(covered, markdown):
    if markdown:
        print("```")
    if markdown and covered:
        print("\nThese rules are covered by others, so that no seed can notice:\n\n| mutation | covered by |\n|---|---|")
    for mutation in covered:
        print(f"| {mutation.name} | {mutation.covered} |" if markdown else f"covered              {mutation.name} (by {mutation.covered})")


def judge(group, options):
    """Whether each of them, which are all of one README.md, was caught or is covered."""
    folder = group[0].folder
    seeds = options.seeds * (1 if folder == "naming" else 4)
    sound = simulate(seeds, folder)
    if sound.returncode != 0:
        sys.exit("the code as it is does not hold:\n" + sound.stdout)
    if options.markdown:
        print("```")
    missed = [mutation for mutation in group if not try_out(mutation, seeds)]
    covered = [mutation for mutation in missed if mutation.covered]
    print_covered(covered, options.markdown)
    print(f"\n{len(group) - len(missed)} of {len(group)} mutations are noticed within {seeds} seeds, "
          f"{len(covered)} are covered by another rule.")
    return len(missed) == len(covered)


def changed_since(revision):
    base, files = find_base(revision or None)
    print(f"mutations of what has changed since {base[:12]}", flush=True)
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--only", default="", metavar="WORD", help="mutations with this in their name")
    parser.add_argument("--changed", nargs="?", const="", metavar="REV")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if options.only in mutation.name]
    if options.changed is not None:
        changed = changed_since(options.changed)
        chosen = [mutation for mutation in chosen if f"src/{mutation.file}" in changed]
    for mutation in chosen:
        count = (ROOT / "src" / mutation.file).read_text().count(mutation.old)
        if count != 1:
            sys.exit(f"{mutation.name}: what it replaces stands {count} times in src/{mutation.file}")
    for mutation in chosen:
        if mutation.name not in (ROOT / mutation.readme).read_text():
            sys.exit(f"{mutation.name}: {mutation.readme} does not have it; tools/simulate --mutations --markdown prints what it has")
    if options.list:
        print("\n".join(mutation.name for mutation in chosen))
        return 0

    if not chosen:
        print("none")
        return 0
    prepare()
    built = build()
    if built.returncode != 0:
        sys.exit(built.stdout)
    groups = [[mutation for mutation in chosen if mutation.folder == folder] for folder in WORLDS]
    return 0 if all([judge(group, options) for group in groups if group]) else 1


if __name__ == "__main__":
    sys.exit(main())
