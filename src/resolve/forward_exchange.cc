#include "resolve/forward_exchange.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace idetcd::resolve {

using dns::EdeCode;
using dns::Rcode;

namespace {

constexpr uint8_t kMaxReconnects = 4;
// Of a server that may be dead: so many connections are opened to see whether it answers over TCP.
constexpr size_t kMaxTcpTrials = 2;

// Failures of ours, not of the server.
bool isWantOfResources(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS || error == EAGAIN;
}

}  // namespace

ForwardExchange::ForwardExchange(ForwardContext& context, Owner& owner, const dns::Query& query,
                                 std::shared_ptr<const UpstreamServers> servers, const UpstreamChoice::Order& order,
                                 bool stream_first)
    : context_(context),
      owner_(owner),
      query_(query),
      servers_(std::move(servers)),
      order_(order),
      stream_first_(stream_first),
      attempt_time_(this, [](void* self) { static_cast<ForwardExchange*>(self)->onTime(); }),
      total_time_(this, [](void* self) { static_cast<ForwardExchange*>(self)->fail(); }) {
  message_.assign(query);
  query_.message = message_.data();
  query_.size = query_.question_end;
}

void ForwardExchange::start() {
  context_.extra.earn();
  context_.totals.arm(total_time_);
  proceed();
}

// On to the next server, until an attempt is on its way or nobody is left to ask.
void ForwardExchange::proceed() {
  while (const auto index = choose()) {
    if (attempt(*index)) return;
  }
  onNobodyLeft();
}

std::optional<uint8_t> ForwardExchange::choose() {
  for (size_t i = 0; i < servers_->size(); ++i) {
    const uint8_t index = order_[i];
    if (mayBeAsked(index) && !(*servers_)[index]->isDown()) return index;
  }
  return chooseAny();
}

// All that could be asked are down, or so it seems: more likely that is a mistake than that the world has ended.
std::optional<uint8_t> ForwardExchange::chooseAny() {
  if (servers_->empty()) noteReason(nullptr, EdeCode::kNoReachableAuthority, "there is no server to forward to");
  if (refusal_) return std::nullopt;
  std::array<uint8_t, Forwarder::kMaxTargets> usable;
  size_t count = 0;
  for (uint8_t i = 0; i < servers_->size(); ++i) {
    if (mayBeAsked(i)) usable[count++] = i;
    // One that is well has been asked, and may still answer.
    if ((tried_ & bit(i)) != 0 && (failed_ & bit(i)) == 0 && !(*servers_)[i]->isDown()) return std::nullopt;
  }
  if (count == 0) return std::nullopt;
  if (context_.options.failfast_all_unhealthy_upstreams) {
    noteReason(nullptr, EdeCode::kNoReachableAuthority, "no healthy upstream");
    return std::nullopt;
  }
  ++context_.counters.healthcheck_broken;
  return usable[context_.random.below(static_cast<uint32_t>(count))];
}

// The next server that is well, where the policy makes no difference between them.
std::optional<uint8_t> ForwardExchange::chooseEqual() const {
  if (context_.options.policy == Forwarder::Policy::kSequential) return std::nullopt;
  const auto now = BootClock::now();
  for (size_t i = 0; i < servers_->size(); ++i) {
    const UpstreamServer& server = *(*servers_)[order_[i]];
    if (mayBeAsked(order_[i]) && !server.isSuspect() && !server.isAvoided(now) && !server.isStreamOnly()) {
      return order_[i];
    }
  }
  return std::nullopt;
}

void ForwardExchange::onNobodyLeft() {
  if (waitForEarlier() || askOverTcp()) return;
  if (refusal_) return finishWith(std::move(refusal_));
  const bool waits =
      std::any_of(datagrams_.begin(), datagrams_.end(), [](const Datagram& d) { return d.client.isOpen(); });
  if (!waits) return fail();
  attempt_time_.disarm();  // it may only be late: a resolver that asks others may take as long as we do
}

// The other datagram, if it has not had its time yet.
bool ForwardExchange::waitForEarlier() {
  const auto now = BootClock::now();
  for (Datagram& datagram : datagrams_) {
    if (!datagram.client.isOpen() || now - datagram.sent_at >= context_.options.attempt_time) continue;
    current_ = &datagram;
    may_be_lost_ = false;
    context_.attempts.arm(attempt_time_);
    return true;
  }
  return false;
}

// What loses datagrams may let TCP through, which repeats what is lost at a rate that fits the path. Not for a server
// that has been silent to all: it would be given connections without end.
bool ForwardExchange::askOverTcp() {
  if (std::exchange(tcp_tried_, true)) return false;
  for (Datagram& datagram : datagrams_) {
    if (!datagram.client.isOpen() || datagram.server->isDown()) continue;
    if (!datagram.server->hasAnsweredSince(datagram.sent_at) &&
        datagram.server->streams().connectionCount() >= kMaxTcpTrials) {
      continue;
    }
    stream_ = datagram;
    current_ = &stream_;
    return attemptStream();
  }
  return false;
}

// False if it has failed at once: the next server's turn.
bool ForwardExchange::attempt(uint8_t index) {
  UpstreamServer& server = *(*servers_)[index];
  if (!server.isStreamOnly() && !stream_first_) return attemptDatagram(begin(index));
  tried_ = static_cast<uint16_t>(tried_ | bit(index));
  stream_ = Attempt(server, index);
  current_ = &stream_;
  return attemptStream();
}

bool ForwardExchange::attemptStream() {
  ticket_.drop();
  may_be_lost_ = false;
  context_.attempts.arm(attempt_time_);
  ++context_.counters.attempts;
  stream_.sent_at = BootClock::now();
  stream_.repeated = false;
  stream_.server->noteAsked(stream_.sent_at);
  const auto id = stream_.server->streams().send(message_.octets(stream_.server->form(stream_.edns)), *this, ticket_);
  if (!id) {
    giveServerUp(stream_, EdeCode::kNetworkError, id.error().message);
    return false;
  }
  stream_.id = *id;
  return true;
}

// One without a use, if need be that of the older datagram.
ForwardExchange::Datagram& ForwardExchange::freeDatagram() {
  Datagram& first = datagrams_[0];
  Datagram& second = datagrams_[1];
  if (!first.client.isOpen()) return first;
  if (!second.client.isOpen()) return second;
  Datagram& older = first.sent_at <= second.sent_at ? first : second;
  older.server->awaitLate(std::move(older.client), older.id, older.sent_at, older.repeated);
  older.client.close();
  return older;
}

ForwardExchange::Datagram& ForwardExchange::begin(uint8_t index) {
  Datagram& datagram = freeDatagram();
  UpstreamServer& server = *(*servers_)[index];
  static_cast<Attempt&>(datagram) = Attempt(server, index);
  tried_ = static_cast<uint16_t>(tried_ | bit(index));
  return datagram;
}

// 0 or errno.
int ForwardExchange::sendDatagram(Datagram& datagram) {
  ++context_.counters.attempts;
  datagram.id = context_.random.next16();
  datagram.sent_at = BootClock::now();
  datagram.repeated = false;
  datagram.server->noteAsked(datagram.sent_at);
  message_.setId(datagram.id);
  const auto message = message_.octets(datagram.server->form(datagram.edns));
  const int error = context_.udp.send(datagram.server->address().address, message, datagram, datagram.client);
  if (error != 0) return error;
  current_ = &datagram;
  may_be_lost_ = true;
  context_.timeouts.arm(attempt_time_, datagram.server->roundTrip().timeout());
  return 0;
}

bool ForwardExchange::attemptDatagram(Datagram& datagram) {
  int error = sendDatagram(datagram);
  if (isWantOfResources(error) && owner_.makeRoom(*this)) error = sendDatagram(datagram);
  if (error == 0) return true;
  if (isWantOfResources(error)) {
    failed_ = 0xffff;  // it would be the same with the others
    overloaded_ = true;
    noteReason(&datagram, EdeCode::kNetworkError, std::strerror(error));
  } else {
    giveServerUp(datagram, EdeCode::kNetworkError, std::strerror(error));
  }
  return false;
}

void ForwardExchange::againWithoutEdns(Attempt& attempt) {
  attempt.edns = false;
  attempt.edns_refused = true;
  if (&attempt == &stream_) {
    if (!attemptStream()) proceed();
  } else if (current_ == &stream_) {
    giveUp(attempt);  // something better is on its way
  } else if (!attemptDatagram(static_cast<Datagram&>(attempt))) {
    proceed();
  }
}

void ForwardExchange::againOverTcp(Attempt& attempt) {
  const bool on_its_way = current_ == &stream_;
  const Attempt same_server = attempt;
  giveUp(attempt);
  if (on_its_way) return;
  stream_ = same_server;
  current_ = &stream_;
  if (!attemptStream()) proceed();
}

// Nothing more is expected of it.
void ForwardExchange::giveUp(Attempt& attempt) {
  if (&attempt == &stream_) {
    ticket_.drop();
  } else {
    static_cast<Datagram&>(attempt).client.close();
  }
}

void ForwardExchange::giveServerUp(const Attempt& attempt, EdeCode ede, const std::string& reason) {
  noteReason(&attempt, ede, reason);
  attempt.server->noteFailure(reason);
  if (&attempt == &stream_ && stream_first_ && !attempt.server->isStreamOnly()) {
    stream_first_ = false;  // the client came over TCP; this server may not want that
    tried_ = static_cast<uint16_t>(tried_ & ~bit(attempt.index));
  } else {
    failed_ = static_cast<uint16_t>(failed_ | bit(attempt.index));
  }
}

void ForwardExchange::noteReason(const Attempt* attempt, EdeCode ede, const std::string& reason) {
  ede_ = ede;
  reason_ = attempt != nullptr ? fmt::format("{}: {}", attempt->server->address().toString(), reason) : reason;
}

void ForwardExchange::onTime() {
  if (!may_be_lost_) return onAttemptTime();
  may_be_lost_ = false;
  auto& lost = static_cast<Datagram&>(*current_);
  lost.server->noteSilence(lost.sent_at, BootClock::now());
  if (!sendExtra(lost)) context_.attempts.arm(attempt_time_);
}

// Whether another datagram has gone to another server, which then has its time. A server that has fallen silent
// altogether is left for one that has not, whatever the budget: what goes to the second is no repetition.
bool ForwardExchange::sendExtra(Datagram& lost) {
  const auto equal = chooseEqual();
  if (equal && lost.server->isSuspect()) {
    if (!extra_spent_) extra_spent_ = context_.extra.take();
    if (askEqual(*equal)) return true;
  }
  if (extra_spent_ || !context_.extra.take()) return false;
  extra_spent_ = true;
  if (equal && mayBeAsked(*equal) && askEqual(*equal)) return true;
  ++context_.counters.attempts;
  ++context_.counters.repeated;
  lost.repeated = true;
  message_.setId(lost.id);
  lost.client.sendAgain(message_.octets(lost.server->form(lost.edns)));  // if that fails, the first may yet be answered
  return false;
}

// False if it cannot be sent; what was sent before is waited for.
bool ForwardExchange::askEqual(uint8_t index) {
  Attempt* const before = current_;
  Datagram& datagram = begin(index);
  const int error = sendDatagram(datagram);
  if (error == 0) {
    ++context_.counters.repeated;
    return true;
  }
  if (!isWantOfResources(error)) giveServerUp(datagram, EdeCode::kNetworkError, std::strerror(error));
  current_ = before;
  return false;
}

void ForwardExchange::onAttemptTime() {
  noteReason(current_, EdeCode::kNoReachableAuthority, "timed out");
  current_->server->noteFailure("timed out");
  if (current_ == &stream_) {
    ticket_.dropLate();
    if (stream_first_ && !stream_.server->isStreamOnly()) tried_ = static_cast<uint16_t>(tried_ & ~bit(stream_.index));
    stream_first_ = false;
  }
  proceed();
}

void ForwardExchange::onMessage(Attempt& attempt, std::span<const uint8_t> message) {
  if (message.size() < dns::kHeaderSize || dns::load16(message.data()) != attempt.id) {
    ++context_.counters.discarded;
    return;
  }
  const auto now = BootClock::now();
  const auto note_answer = [&attempt, now] {
    attempt.server->noteAnswer(now);
    if (!attempt.repeated) attempt.server->noteRoundTrip(attempt.sent_at, now);
  };
  if (attempt.edns && refusesEdns(message, attempt.id, query_)) {
    note_answer();
    return againWithoutEdns(attempt);
  }
  auto response = std::make_shared<StoredResponse>();
  switch (readUpstreamResponse(message, attempt.id, query_, *response)) {
    case UpstreamVerdict::kAccepted:
      // On an unprotected path anybody could have set it (RFC 4035 §4.9.3).
      if (!trustsAd(*attempt.server)) response->sections.authentic_data = false;
      note_answer();
      return onAnswer(attempt, std::move(response), now);
    case UpstreamVerdict::kMismatch:
      ++context_.counters.discarded;
      return;
    case UpstreamVerdict::kTruncated:
      note_answer();
      if (&attempt != &stream_) return againOverTcp(attempt);
      noteReason(&attempt, EdeCode::kNetworkError, "truncated over TCP");
      break;
    case UpstreamVerdict::kMalformed:
      noteReason(&attempt, EdeCode::kNetworkError, "malformed response");
      break;
  }
  failed_ = static_cast<uint16_t>(failed_ | bit(attempt.index));
  onUseless(attempt);
}

void ForwardExchange::onAnswer(Attempt& attempt, std::shared_ptr<const StoredResponse> response,
                               BootClock::time_point now) {
  const Rcode rcode = response->sections.rcode;
  if (attempt.edns_refused && rcode != Rcode::kFormErr && rcode != Rcode::kNotImp) attempt.server->noteNoEdns();
  const auto& failover = context_.options.failover;
  if (std::find(failover.begin(), failover.end(), rcode) != failover.end()) {
    refusal_ = std::move(response);
    return onUseless(attempt);
  }
  for (uint8_t i = 0; rejected_ != 0 && i < servers_->size(); ++i) {
    if ((rejected_ & bit(i)) != 0 && i != attempt.index) (*servers_)[i]->noteRejected(now);
  }
  attempt.server->noteUseful();
  giveUp(attempt);
  for (Datagram& datagram : datagrams_) {  // how long they take is worth knowing all the same
    if (!datagram.client.isOpen() || datagram.server == attempt.server) continue;
    datagram.server->awaitLate(std::move(datagram.client), datagram.id, datagram.sent_at, datagram.repeated);
  }
  finishWith(std::move(response));
}

// The server is there, but what it says is of no use for this question.
void ForwardExchange::onUseless(Attempt& attempt) {
  rejected_ = static_cast<uint16_t>(rejected_ | bit(attempt.index));
  giveUp(attempt);
  if (&attempt == current_) proceed();
}

void ForwardExchange::onDatagramError(Datagram& datagram, int error) {
  giveServerUp(datagram, EdeCode::kNetworkError, std::strerror(error));
  datagram.client.close();
  if (&datagram == current_) proceed();
}

void ForwardExchange::onStreamFailed(const std::string& reason, bool used_before) {
  if (used_before && reconnects_ < kMaxReconnects) {  // it may merely have been closed when it was idle
    ++reconnects_;
    if (!attemptStream()) proceed();
    return;
  }
  giveServerUp(stream_, EdeCode::kNetworkError, reason);
  proceed();
}

void ForwardExchange::finishWith(std::shared_ptr<const StoredResponse> response) {
  const Rcode rcode = response->sections.rcode;
  finish({.response = std::move(response), .rcode = rcode, .ede = std::nullopt, .reason = {}});
}

void ForwardExchange::fail() {
  if (refusal_) return finishWith(std::move(refusal_));
  if (reason_.empty()) noteReason(current_, EdeCode::kNoReachableAuthority, "timed out");
  finish({.response = nullptr,
          .rcode = Rcode::kServFail,
          .ede = ede_,
          .reason = std::move(reason_),
          .overloaded = overloaded_});
}

}  // namespace idetcd::resolve
