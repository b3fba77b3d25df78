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
      return "a member of the cluster";
  }
  if (silent) reason = observes ? ": observes, and founds nothing" : ": silent after a restart";
  return fmt::format("{} of {} machines seen, {} s{}", seen, quorum, seconds, reason);
}

Elector::Elector(Options options, const Key& key, Record record, Time now, RandomSource& random)
    : options_(std::move(options)),
      key_(key),
      started_(now),
      silent_(options_.silence > Duration(0)),
      hello_(options_.self.member.uuid, options_.peers, now, random),
      founding_(options_.self, std::move(record), random) {}

void Elector::receive(Time now, const SocketAddress& from, std::string_view envelope) {
  const auto opened = unseal(key_, envelope);
  if (!opened) return drop(opened.error());
  const std::optional<Message> message = decode(opened->body);
  if (!message) return drop(Drop::kBody);
  SocketAddress sender = from;
  sender.port = message->port;
  std::visit([&](const auto& body) { handle(now, sender, opened->nonce, body); }, message->body);
}

void Elector::advance(Time now) {
  if (founding_.decision() && !searching_) return;
  if (now >= started_ + options_.silence) silent_ = false;
  for (const Hello::Question& question : hello_.due(now)) seal(question.to, question.nonce, HelloRequest{self()});
  if (!silent_) founding_.advance(now, hello_.electors(now), hello_.lastNews());
}

std::optional<Elector::Time> Elector::wakeAt(Time now) const {
  if (founding_.decision() && !searching_) return std::nullopt;
  return now + kTick;
}

std::vector<Elector::Outgoing> Elector::takeMessages() {
  for (Founding::Outgoing& message : founding_.takeMessages()) seal(message.to, message.nonce, std::move(message.body));
  return std::exchange(messages_, {});
}

Progress Elector::progress(Time now) const {
  return {founding_.state(), silent_, hello_.electors(now).size() + (isElector() ? 1 : 0), founding_.quorum(),
          now - started_, options_.silence == kForEver};
}

Machine Elector::self() const {
  Machine machine = options_.self;
  machine.elector = isElector();
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
  const std::optional<Value>& cluster = founding_.decision();
  if (!cluster) hello_.asked(now, from, request.machine);
  if (silent_ && !cluster) return;
  HelloResponse response{self(), {}, cluster};
  if (!cluster) response.peers = hello_.peers(now);
  if (cluster && voters() != cluster->voters) response.voters = voters();
  seal(from, nonce, std::move(response));
}

void Elector::handle(Time now, const SocketAddress& from, Nonce nonce, const HelloResponse& response) {
  if (founding_.decision() && !searching_) return;
  if (!hello_.answered(now, from, nonce, response)) return drop(Drop::kNonce);
  if (!response.cluster) return;
  founding_.learn(*response.cluster);
  founding_.setVoters(response.cluster->cluster, response.voters.empty() ? response.cluster->voters : response.voters);
  if (founding_.decision() && founding_.decision()->cluster != response.cluster->cluster) other_ = response.cluster;
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
