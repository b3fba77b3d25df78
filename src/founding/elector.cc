#include "founding/elector.h"

namespace idetcd::founding {

std::string Progress::toString() const {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(waited).count();
  const char* reason = "";
  switch (state) {
    case Founding::State::kTooFew:
      break;
    case Founding::State::kTooMany:
      reason = ": more than are expected";
      break;
    case Founding::State::kDisagreement:
      reason = ": not all expect the same number";
      break;
    case Founding::State::kAsking:
      reason = ": not all addresses are asked yet";
      break;
    case Founding::State::kQuiet:
      reason = ": more may come";
      break;
    case Founding::State::kOthers:
      reason = ": another one founds the cluster";
      break;
    case Founding::State::kProposing:
      reason = ": this one founds the cluster";
      break;
    case Founding::State::kDecided:
      return leaves ? "this machine leaves its cluster for another one" : "a member of the cluster";
  }
  if (silent) reason = observes ? ": observes, and founds nothing" : ": silent after a restart";
  return fmt::format("{} of {} machines seen, {} s{}", seen, quorum, seconds, reason);
}

Elector::Elector(Options options, const Key& key, Record record, Time now, RandomSource& random)
    : options_(std::move(options)),
      key_(key),
      started_(now),
      silent_(options_.silence > Duration(0)),
      around_at_(now + Hello::kAround),
      hello_(options_.self, options_.peers, options_.has_names, now, random),
      founding_(options_.self, std::move(record), random) {}

void Elector::receive(Time now, const SocketAddress& from, std::string_view envelope) {
  if (next()) return;
  const auto opened = unseal(key_, envelope);
  if (!opened) return drop(opened.error());
  const std::optional<Message> message = decode(opened->body);
  if (!message) return drop(Drop::kBody);
  SocketAddress sender = from;
  sender.port = message->port;
  std::visit([&](const auto& body) { handle(now, sender, opened->nonce, body); }, message->body);
}

void Elector::advance(Time now) {
  if (next()) return;
  if (founding_.decision() && !isSearching()) return askAround(now);
  if (now >= started_ + options_.silence) silent_ = false;
  for (const Hello::Question& question : hello_.due(now)) seal(question.to, question.nonce, HelloRequest{self()});
  if (!silent_) founding_.advance(now, hello_.electors(now), hello_.lastNews(), hello_.hasAskedAll(now));
}

void Elector::askAround(Time now) {
  const Value& own = *founding_.decision();
  if (searching_ == false && std::exchange(round_of_, own.cluster) != own.cluster) {
    const auto others = hello_.others(own.members);
    round_.assign(others.begin(), others.end());
  }
  for (Duration time = kTick; !round_.empty() && time > Duration(0); time -= Hello::kStep) {
    ask(hello_.next(now, round_.front()));
    round_.pop_front();
  }
  if (now < around_at_) return;
  around_at_ = now + Hello::kAround * static_cast<int64_t>(1 + own.members.size() / Hello::kShare);
  ask(hello_.next(now));
}

void Elector::ask(const std::optional<Hello::Question>& question) {
  if (question) seal(question->to, question->nonce, HelloRequest{self()});
}

void Elector::left() {
  founding_.left();
  other_.reset();
  searching_.reset();
}

Elector::Time Elector::wakeAt(Time now) const {
  return founding_.decision() && !isSearching() && round_.empty() ? std::max(around_at_, now + kTick) : now + kTick;
}

std::vector<Elector::Outgoing> Elector::takeMessages() {
  for (Founding::Outgoing& message : founding_.takeMessages()) seal(message.to, message.nonce, std::move(message.body));
  return std::exchange(messages_, {});
}

Progress Elector::progress(Time now) const {
  return {founding_.state(), silent_, hello_.electors(now).size() + (isElector() ? 1 : 0), founding_.quorum(),
          now - started_, options_.silence == kForEver, next().has_value()};
}

Machine Elector::self() const {
  Machine machine = options_.self;
  machine.elector = isElector();
  if (founding_.decision()) machine.cluster = founding_.decision()->cluster;
  return machine;
}

void Elector::seal(const SocketAddress& to, Nonce nonce, Body body) {
  messages_.push_back({to, founding::seal(key_, nonce, encode(Message{options_.port, std::move(body)}))});
}

bool Elector::isForThis(const std::string& uuid) {
  if (uuid == options_.self.member.uuid) return true;
  drop(Drop::kReceiver);
  return false;
}

void Elector::handle(Time now, const SocketAddress& from, Nonce nonce, const HelloRequest& request) {
  if (isEcho(request.machine)) return;
  const std::optional<Value>& cluster = founding_.decision();
  if (!cluster) hello_.asked(now, from, request.machine);
  if (silent_ && !cluster) return;
  if (isStranger(request.machine)) ask(hello_.next(now, from));
  HelloResponse response{self(), {}, cluster};
  response.connected = searching_ == false;
  if (cluster && request.machine.cluster == cluster->cluster) response.cluster.reset();
  if (!cluster) response.peers = hello_.peers(now);
  if (cluster && voters() != cluster->voters) response.voters = voters();
  seal(from, nonce, std::move(response));
}

void Elector::handle(Time now, const SocketAddress& from, Nonce nonce, const HelloResponse& response) {
  if (isEcho(response.machine)) return;
  if (!hello_.answered(now, from, nonce, response)) return drop(Drop::kNonce);
  const std::optional<Value>& cluster = founding_.decision();
  if (cluster && response.cluster && response.cluster->cluster != cluster->cluster) {
    other_ = response.cluster;
    if (yields(*cluster, *other_) && response.connected) founding_.leaveFor(*other_, response.voters);
  } else if (cluster && response.machine.cluster == cluster->cluster) {
    if (isSearching()) setVoters(response.voters.empty() ? cluster->voters : response.voters);
  } else if (response.cluster) {
    founding_.learn(*response.cluster);
    founding_.setVoters(response.cluster->cluster, response.voters.empty() ? response.cluster->voters : response.voters);
  }
}

// Says this machine itself: it was meant for another one, and somebody sends it back, or an address leads here that is not
// known to be its own.
bool Elector::isEcho(const Machine& machine) {
  if (machine.member.uuid != options_.self.member.uuid) return false;
  drop(Drop::kReceiver);
  return true;
}

// A member of another cluster of this secret.
bool Elector::isStranger(const Machine& machine) const {
  const std::optional<Value>& own = founding_.decision();
  return own && !machine.cluster.empty() && machine.cluster != own->cluster;
}

void Elector::handle(Time now, const SocketAddress& from, Nonce nonce, const Prepare& request) {
  if (isForThis(request.to) && !silent_) founding_.receive(now, from, nonce, request);
}

void Elector::handle(Time now, const SocketAddress& from, Nonce nonce, const Accept& request) {
  if (isForThis(request.to) && !silent_) founding_.receive(now, from, nonce, request);
}

void Elector::handle(Time /*now*/, const SocketAddress& /*from*/, Nonce /*nonce*/, const Decided& request) {
  if (isForThis(request.to)) founding_.learn(request.value);
}

}  // namespace idetcd::founding
