#include "founding/founding.h"

#include "node/uuid.h"

namespace idetcd::founding {

namespace {

// More only wait if the disk stands still; what is lost with them is asked again.
constexpr size_t kMaxAnswers = 1024;

// Of those that are the fittest the oldest vote.
int fitnessToVote(const Machine& machine) { return (machine.can_vote ? 2 : 0) + (machine.durable ? 1 : 0); }

}  // namespace

Founding::Founding(Machine self, Record record, RandomSource& random)
    : self_(std::move(self)),
      expect_(self_.expect),
      random_(random),
      record_(std::move(record)),
      decision_(record_.decided),
      next_(record_.next) {
  assert(expect_ > 0 && expect_ <= kMaxMachines && record_.uuid == self_.member.uuid);
  if (decision_) state_ = State::kDecided;
}

// --- proposer ---

void Founding::advance(Time now, const std::vector<Hello::Seen>& others, Time last_news, bool asked_all) {
  if (record_.decided) return;
  if (attempt_) {
    proceed(now);
    if (record_.decided || !attempt_) return;
    if (now >= attempt_->began + kAttempt) return giveUp(now);
    if (now >= attempt_->sent + kResend) send(now);
    return;
  }
  state_ = stateOf(now, others, last_news, asked_all);
  if (state_ != State::kOthers) {
    ready_since_.reset();
    return;
  }
  if (!ready_since_) ready_since_ = now;
  const auto older = std::count_if(others.begin(), others.end(),
                                   [this](const Hello::Seen& one) { return one.machine.member < self_.member; });
  if (now >= std::max(*ready_since_ + older * kRankDelay, next_attempt_)) propose(now, others);
}

Founding::State Founding::stateOf(Time now, const std::vector<Hello::Seen>& others, Time last_news,
                                   bool asked_all) const {
  const size_t seen = others.size() + 1;
  const bool agree = std::all_of(others.begin(), others.end(),
                                 [this](const Hello::Seen& one) { return one.machine.expect == self_.expect; });
  const bool quiet = seen == expect_ || now >= last_news + kQuiet;  // no other one can come, or none does
  if (!agree) return State::kDisagreement;
  if (seen < quorum()) return State::kTooFew;
  if (seen > expect_) return State::kTooMany;
  if (!asked_all) return State::kAsking;
  return quiet ? State::kOthers : State::kQuiet;
}

void Founding::propose(Time now, const std::vector<Hello::Seen>& others) {
  state_ = State::kProposing;
  round_ = std::max(round_, record_.promised.round) + 1;
  attempt_ = {.ballot = {round_, self_.member.uuid},
              .nonce = random_.next(),
              .others = others,
              .began = now,
              .sent = now,
              .promises = {},
              .value = {},
              .accepted = {}};
  send(now);
  prepare(now, std::nullopt, attempt_->nonce, Ballot(attempt_->ballot));
}

bool Founding::receive(Time now, Nonce nonce, const Promise& response) {
  if (!attempt_ || nonce != attempt_->nonce) return false;
  if (attempt_->value || response.ballot != attempt_->ballot) return true;
  attempt_->promises.insert_or_assign(response.machine.member.uuid, response);
  proceed(now);
  return true;
}

bool Founding::receive(Time now, Nonce nonce, const Accepted& response) {
  if (!attempt_ || nonce != attempt_->nonce) return false;
  if (!attempt_->value || response.ballot != attempt_->ballot) return true;
  attempt_->accepted.insert(response.from);
  proceed(now);
  return true;
}

bool Founding::receive(Time now, Nonce nonce, const Refused& response) {
  if (!attempt_ || nonce != attempt_->nonce) return false;
  if (response.ballot != attempt_->ballot) return true;
  round_ = std::max(round_, response.promised.round);
  giveUp(now);
  return true;
}

// Goes on to the second phase, or ends it.
void Founding::proceed(Time now) {
  if (attempt_->value) {
    if (attempt_->accepted.size() >= quorum()) decide(*attempt_->value);
    return;
  }
  const size_t promised = attempt_->promises.size();
  const bool all = promised > attempt_->others.size();
  // Without a durable promise of its own it could use this ballot again, for another value, after a restart.
  if (promised < quorum() || !attempt_->promises.contains(self_.member.uuid)) return;
  if (!all && now < attempt_->began + kAllPromise) return;
  attempt_->value = valueOf(attempt_->promises);
  attempt_->began = now;
  send(now);
  accept(now, std::nullopt, attempt_->nonce, {attempt_->ballot, *attempt_->value});
}

void Founding::send(Time now) {
  attempt_->sent = now;
  for (const Hello::Seen& other : attempt_->others) {
    const std::string& uuid = other.machine.member.uuid;
    if (attempt_->value) {
      if (attempt_->accepted.contains(uuid)) continue;
      messages_.push_back({other.address, attempt_->nonce, Accept{uuid, {attempt_->ballot, *attempt_->value}}});
    } else if (!attempt_->promises.contains(uuid)) {
      messages_.push_back({other.address, attempt_->nonce, Prepare{uuid, attempt_->ballot}});
    }
  }
}

void Founding::giveUp(Time now) {
  attempt_.reset();
  const Duration mean = std::min<Duration>(kQuiet * (1 << std::min(failures_++, 10)), kMaxBackoff);
  next_attempt_ = now + jittered(mean);
}

// The value that may have been chosen, if there is any; else a new one, of the machines that have promised.
Value Founding::valueOf(const std::map<std::string, Promise>& promises) const {
  const Acceptance* newest = nullptr;
  for (const auto& [uuid, promise] : promises) {
    if (promise.accepted && (newest == nullptr || newest->ballot < promise.accepted->ballot))
      newest = &*promise.accepted;
  }
  if (newest != nullptr) return newest->value;

  std::vector<const Machine*> machines;
  machines.reserve(promises.size());
  for (const auto& [uuid, promise] : promises) machines.push_back(&promise.machine);
  std::sort(machines.begin(), machines.end(),
            [](const Machine* one, const Machine* other) { return one->member < other->member; });
  Value value{node::randomUuid(random_), {}, {}, 1};
  int fittest = 0;
  for (const Machine* machine : machines) fittest = std::max(fittest, fitnessToVote(*machine));
  const auto fit = static_cast<size_t>(std::count_if(
      machines.begin(), machines.end(), [fittest](const Machine* one) { return fitnessToVote(*one) == fittest; }));
  size_t voters = votersFor(machines.size());
  while (voters > fit) voters -= 2;  // an odd number: one more bears no more failures
  for (const Machine* machine : machines) {
    value.members.push_back(machine->member);
    if (value.voters.size() < voters && fitnessToVote(*machine) == fittest)
      value.voters.push_back({machine->member.uuid, machine->addresses.front()});
    value.token_base = std::max(value.token_base, machine->token + 1);
  }
  return value;
}

// --- acceptor ---

void Founding::receive(Time now, const SocketAddress& from, Nonce nonce, const Prepare& request) {
  prepare(now, from, nonce, request.ballot);
}

void Founding::receive(Time now, const SocketAddress& from, Nonce nonce, const Accept& request) {
  accept(now, from, nonce, request.proposal);
}

void Founding::prepare(Time now, std::optional<SocketAddress> from, Nonce nonce, const Ballot& ballot) {
  if (!isOpen(now, from, nonce, ballot)) return;
  if (ballot > record_.promised) {
    record_.promised = ballot;
    save();
  }
  answerWhenWritten(now, from, nonce, Promise{self_, ballot, record_.accepted});
}

void Founding::accept(Time now, std::optional<SocketAddress> from, Nonce nonce, const Acceptance& proposal) {
  if (!isOpen(now, from, nonce, proposal.ballot)) return;
  if (!record_.accepted || record_.accepted->ballot < proposal.ballot) {
    record_.promised = proposal.ballot;
    record_.accepted = proposal;
    save();
  }
  answerWhenWritten(now, from, nonce, Accepted{self_.member.uuid, proposal.ballot});
}

bool Founding::isOpen(Time now, const std::optional<SocketAddress>& from, Nonce nonce, const Ballot& ballot) {
  if (record_.decided) {
    if (decision_ && from) answer(now, from, nonce, Decided{ballot.proposer, *decision_});
    return false;
  }
  round_ = std::max(round_, ballot.round);
  if (ballot < record_.promised) {
    answer(now, from, nonce, Refused{ballot, record_.promised});
    return false;
  }
  if (ballot.proposer != self_.member.uuid) {  // another one's attempt, which is to have its time
    if (attempt_ && attempt_->ballot < ballot) attempt_.reset();
    next_attempt_ = std::max(next_attempt_, now + kAttempt + jittered(kAttempt));
  }
  return true;
}

void Founding::answerWhenWritten(Time now, std::optional<SocketAddress> to, Nonce nonce, Body body) {
  if (written_ >= version_) return answer(now, to, nonce, std::move(body));
  if (answers_.size() >= kMaxAnswers) answers_.pop_front();
  answers_.push_back({version_, to, nonce, std::move(body)});
}

void Founding::answer(Time now, const std::optional<SocketAddress>& to, Nonce nonce, Body body) {
  if (to) {
    messages_.push_back({*to, nonce, std::move(body)});
  } else if (const auto* promise = std::get_if<Promise>(&body)) {
    receive(now, nonce, *promise);
  } else if (const auto* accepted = std::get_if<Accepted>(&body)) {
    receive(now, nonce, *accepted);
  } else if (const auto* refused = std::get_if<Refused>(&body)) {
    receive(now, nonce, *refused);
  }
}

// --- the record ---

void Founding::learn(const Value& value) { decide(value); }

void Founding::decide(const Value& value) {
  if (record_.decided) return;
  record_.decided = value;
  answers_.clear();
  save();
}

void Founding::leaveFor(const Value& other, const std::vector<Voter>& voters) {
  assert(decision_);
  if (record_.next) return;
  record_.next = other;
  next_voters_ = voters;
  save();
}

void Founding::left() {
  assert(next_);
  record_ = {.uuid = record_.uuid, .promised = {}, .accepted = {}, .decided = next_, .voters = std::move(next_voters_)};
  save();
}

void Founding::setVoters(std::string_view cluster, const std::vector<Voter>& voters) {
  if (!record_.decided || record_.decided->cluster != cluster || voters.empty() || voters == this->voters()) return;
  record_.voters = voters;
  save();
}

std::optional<Founding::Unwritten> Founding::takeUnwritten() {
  if (taken_ == version_) return std::nullopt;
  taken_ = version_;
  return Unwritten{version_, encode(record_)};
}

void Founding::written(Time now, uint64_t version) {
  written_ = std::max(written_, version);
  while (!answers_.empty() && answers_.front().version <= written_) {
    const Answer due = std::move(answers_.front());
    answers_.pop_front();
    answer(now, due.to, due.nonce, due.body);
  }
  if (!record_.decided || written_ < version_) return;
  next_ = record_.next;
  if (decision_ && decision_->cluster == record_.decided->cluster) return;
  decision_ = record_.decided;
  state_ = State::kDecided;
  if (attempt_) {
    for (const Hello::Seen& other : attempt_->others)
      messages_.push_back({other.address, random_.next(), Decided{other.machine.member.uuid, *decision_}});
  }
  attempt_.reset();
}

// From a half to one and a half times the mean.
Founding::Duration Founding::jittered(Duration mean) {
  return mean / 2 + Duration(static_cast<int64_t>(random_.next() % static_cast<uint64_t>(mean.count())));
}

}  // namespace idetcd::founding
