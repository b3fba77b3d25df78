#include "resolver/forward_exchange.h"

#include "dns/message_reader.h"

namespace idetcd::resolver {

using dns::EdeCode;
using dns::Rcode;

namespace {

constexpr uint8_t kMaxReconnects = 4;
constexpr uint8_t kMaxNearMisses = 4;
// Of a server that may be dead: so many connections are opened to see whether it answers over TCP.
constexpr size_t kMaxTcpTrials = 2;

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
  message_.assign(query, context_.options.udp_payload);
  if (context_.options.use_caps_for_id) message_.drawCase(context_.random);
  query_.message = message_.data();
  query_.size = query_.question_end;
}

void ForwardExchange::start() {
  context_.extra.earn();
  context_.extra_over_tcp.earn();
  context_.totals.arm(total_time_);
  proceed();
}

// On to the next server, until an attempt is on its way or no server is left to ask.
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
  for (size_t i = 0; i < servers_->size(); ++i) {
    const uint8_t index = order_[i];
    if (mayBeAsked(index)) usable[count++] = index;
    // One that is well has been asked, and may still answer.
    if ((tried_ & bit(index)) != 0 && (failed_ & bit(index)) == 0 && !(*servers_)[index]->isDown()) return std::nullopt;
  }
  if (count == 0) return std::nullopt;
  if (context_.options.failfast_all_unhealthy_upstreams) {
    noteReason(nullptr, EdeCode::kNoReachableAuthority, "no healthy upstream");
    return std::nullopt;
  }
  context_.counters.healthcheck_broken.add();
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
  if (waitForEarlier() || askOverTcp() || askOverNewConnection()) return;
  if (refusal_) return finishWith(std::move(refusal_));
  if (!isWaiting()) return fail();
  attempt_time_.disarm();  // it may only be late: a resolver that asks others may take as long as we do
}

bool ForwardExchange::isWaiting() const {
  return ticket_.isWaiting() ||
         std::any_of(datagrams_.begin(), datagrams_.end(), [](const Datagram& d) { return d.client.isOpen(); });
}

// The other datagram, if it has not had its time yet.
bool ForwardExchange::waitForEarlier() {
  const auto now = BootClock::now();
  for (Datagram& datagram : datagrams_) {
    if (!datagram.client.isOpen() || now - datagram.sent_at >= context_.options.attempt_time) continue;
    current_ = &datagram;
    time_ = Time::kAttempt;
    context_.attempts.arm(attempt_time_);
    return true;
  }
  return false;
}

// What loses datagrams may let TCP through, which repeats what is lost at a rate that fits the path. Not for a server
// that has been silent to all: it would be given connections without end.
bool ForwardExchange::askOverTcp() {
  if (std::exchange(tcp_tried_, true) || !mayAskMore()) return false;
  ++attempts_;
  for (Datagram& datagram : datagrams_) {
    if (!datagram.client.isOpen() || datagram.server->isDown()) continue;
    if (!datagram.server->hasAnsweredSince(datagram.sent_at) &&
        datagram.server->streams().connectionCount() >= kMaxTcpTrials) {
      continue;
    }
    stream_ = datagram;
    return attemptStream();
  }
  return false;
}

// Not if it is in doubt already whether the server is there at all.
bool ForwardExchange::askOverTcpSoon() {
  return !current_->server->isAvoided(BootClock::now()) && context_.extra_over_tcp.take() && askOverTcp();
}

// A path that has forgotten a connection (a firewall, an address translator) says nothing, and a server that is gone
// neither. Only once: a connection that was opened for this question would show nothing new.
bool ForwardExchange::askOverNewConnection() {
  if (!ticket_.isSilentSince(stream_.sent_at)) return false;
  return attemptStream(stream_.sent_at);
}

// Whether the question has gone over another connection, or was given up, before the attempt's time. Where others have
// found the connection silent too, there is one that they share already.
bool ForwardExchange::leaveSilentConnection() {
  if (!ticket_.isSilentSince(stream_.sent_at)) return false;
  if (!ticket_.isLate() && !context_.extra_over_tcp.take()) return false;
  ticket_.noteLate();
  if (!askOverNewConnection()) proceed();
  return true;
}

// False if it has failed at once: the next server's turn.
bool ForwardExchange::attempt(uint8_t index) {
  ++attempts_;
  UpstreamServer& server = *(*servers_)[index];
  if (mayUseDatagrams(server)) return attemptDatagram(begin(index));
  tried_ = static_cast<uint16_t>(tried_ | bit(index));
  stream_ = Attempt(server, index);
  return attemptStream();
}

// Instead of what is on its way over a stream. `proven`: as StreamPool::send().
bool ForwardExchange::attemptStream(BootClock::time_point proven) {
  current_ = &stream_;
  ticket_.drop();
  time_ = Time::kAttempt;
  context_.attempts.arm(attempt_time_);
  context_.counters.attempts.add();
  stream_.sent_at = BootClock::now();
  stream_.repeated = false;
  stream_.server->noteAsked(stream_.sent_at);
  const size_t connections = stream_.server->streams().connectionCount();
  const auto id = stream_.server->streams().send(messageFor(stream_), *this, ticket_, proven);
  if (!id) {
    if (id.error().code == ErrorCode::kNoResources) {
      overloaded_ = true;
      noteReason(&stream_, EdeCode::kNetworkError, id.error().message);
      leaveServer(stream_);
    } else {
      giveServerUp(stream_, EdeCode::kNetworkError, id.error().message);
    }
    return false;
  }
  stream_.id = *id;
  stream_.server->noteConnection(stream_.server->streams().connectionCount() == connections);
  if (proven == BootClock::time_point{} && ticket_.isSilentSince(stream_.sent_at)) {
    time_ = Time::kRepetition;
    context_.timeouts.arm(attempt_time_, 2 * stream_.server->roundTrip().timeout());
  }
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
  context_.counters.attempts.add();
  datagram.id = context_.random.next16();
  datagram.sent_at = BootClock::now();
  datagram.repeated = false;
  datagram.server->noteAsked(datagram.sent_at);
  message_.setId(datagram.id);
  const auto message = messageFor(datagram);
  const int error = context_.send(datagram.server->address().address, message, datagram, datagram.client);
  if (error != 0) return error;
  noteOwnAddress(datagram);
  current_ = &datagram;
  time_ = Time::kUsual;
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

// What is sent, with the cookie of this moment. Where nobody knows whether the server minds cookies, a message that is
// sent again has none: it may be the cookie that keeps it from answering.
std::span<const uint8_t> ForwardExchange::messageFor(Attempt& attempt) {
  const auto form = attempt.server->form(attempt.edns);
  UpstreamCookie& cookie = attempt.server->cookie();
  attempt.cookie.reset();
  const bool doubtful = attempt.cookie_refused || (attempt.repeated && !cookie.isTolerated());
  ForwardMessage::Extras extras{.cookie = {}, .keepalive = &attempt == &stream_ && attempt.server->asksKeepalive()};
  if (form != ForwardMessage::Form::kEdns || doubtful) return message_.bytes(form, extras);
  extras.cookie = cookie.option(BootClock::now());
  if (!extras.cookie.empty()) attempt.cookie = cookie.client();
  return message_.bytes(form, extras);
}

void ForwardExchange::noteOwnAddress(const Datagram& datagram) {
  UpstreamCookie& cookie = datagram.server->cookie();
  if (!cookie.wantsOwnAddress(datagram.sent_at)) return;
  if (const auto own = datagram.client.localIp()) cookie.noteOwnAddress(*own, context_.random, datagram.sent_at);
}

void ForwardExchange::againWithoutEdns(Attempt& attempt) {
  attempt.edns = false;
  attempt.edns_refused = true;
  again(attempt);
}

// The same server, with what `attempt` says now.
void ForwardExchange::again(Attempt& attempt) {
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
  if (&attempt == &stream_) noteStreamFailed();
  leaveServer(attempt);
}

// What was to be asked over TCP, since a cookie was missing, cannot be: the server may have no TCP.
void ForwardExchange::noteStreamFailed() {
  if (std::exchange(cookie_missing_, false)) stream_.server->cookie().noteStopped(BootClock::now());
}

void ForwardExchange::leaveServer(const Attempt& attempt) {
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
  if (time_ == Time::kAttempt) return onAttemptTime();
  if (time_ == Time::kUsual) {
    auto& lost = static_cast<Datagram&>(*current_);
    time_ = Time::kRepetition;
    lost.server->noteSilence(lost.sent_at, BootClock::now());
    if (sendExtra(lost)) return;
    if (!tcp_tried_ && !hasOthers()) return context_.timeouts.arm(attempt_time_, lost.server->roundTrip().timeout());
  } else if (current_ == &stream_ ? leaveSilentConnection() : askOverTcpSoon()) {
    return;
  }
  time_ = Time::kAttempt;
  context_.attempts.arm(attempt_time_);
}

// Whether another server is to be asked before this one is asked over TCP.
bool ForwardExchange::hasOthers() const {
  for (size_t i = 0; i < servers_->size(); ++i) {
    if (mayBeAsked(order_[i]) && !(*servers_)[order_[i]]->isDown()) return true;
  }
  return false;
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
  context_.counters.attempts.add();
  context_.counters.repeated.add();
  lost.repeated = true;
  message_.setId(lost.id);
  lost.client.sendAgain(messageFor(lost));  // if that fails, the first may yet be answered
  return false;
}

// False if it cannot be sent; what was sent before is waited for.
bool ForwardExchange::askEqual(uint8_t index) {
  ++attempts_;
  Attempt* const before = current_;
  Datagram& datagram = begin(index);
  const int error = sendDatagram(datagram);
  if (error == 0) {
    context_.counters.repeated.add();
    return true;
  }
  if (!isWantOfResources(error)) giveServerUp(datagram, EdeCode::kNetworkError, std::strerror(error));
  current_ = before;
  return false;
}

void ForwardExchange::onAttemptTime() {
  noteReason(current_, EdeCode::kNoReachableAuthority, "i/o timeout");
  current_->server->noteFailure("i/o timeout");
  if (current_ == &stream_) {
    noteStreamFailed();
    ticket_.noteLate();
    if (stream_first_ && !stream_.server->isStreamOnly()) tried_ = static_cast<uint16_t>(tried_ & ~bit(stream_.index));
    stream_first_ = false;
  }
  proceed();
}

// It may end, and destroy this.
void ForwardExchange::onNearMiss(Attempt& attempt) {
  context_.counters.discarded.add();
  if (&attempt == &stream_ || ++near_misses_ != kMaxNearMisses) return;
  context_.counters.suspected.add();
  suspicious_ = true;
  stream_first_ = false;  // it would allow datagrams where TCP fails
  tcp_tried_ = true;
  for (Datagram& datagram : datagrams_) {
    if (&datagram != &attempt) giveUp(datagram);
  }
  againOverTcp(attempt);
}

bool ForwardExchange::isInOtherCase(const Attempt& attempt, std::span<const uint8_t> message) const {
  return context_.options.use_caps_for_id && &attempt != &stream_ && dns::matchQuestion(message, query_) != 0 &&
         !message_.hasSameCase(message);
}

void ForwardExchange::onMessage(Attempt& attempt, std::span<const uint8_t> message) {
  if (message.size() < dns::kHeaderSize) return context_.counters.discarded.add();
  if (dns::load16(message.data()) != attempt.id) return onNearMiss(attempt);
  if (isInOtherCase(attempt, message)) {
    context_.counters.discarded.add();
    context_.counters.suspected.add();
    return againOverTcp(attempt);
  }
  if (!context_.options.use_caps_for_id) return readMessage(attempt, message);
  // Names in the answer may end in the question's: the case that was drawn goes no further.
  std::vector<uint8_t> folded(message.begin(), message.end());
  const size_t name_end = dns::matchQuestion(message, query_) != 0 ? dns::kHeaderSize + query_.qname_size : 0;
  if (name_end != 0) std::ranges::copy(query_.name(), folded.begin() + dns::kHeaderSize);
  folded.resize(message.size() + net::UdpQuerySocket::kReadSlack);
  readMessage(attempt, std::span<const uint8_t>(folded).first(message.size()));
}

// With the ID of what was asked.
void ForwardExchange::readMessage(Attempt& attempt, std::span<const uint8_t> message) {
  const auto now = BootClock::now();
  const auto note_answer = [&attempt, message, now] {
    attempt.server->noteAnswer(now);
    attempt.server->noteResponse(dns::HeaderView(message.data()).rcode(), now - attempt.sent_at);
    if (!attempt.repeated) attempt.server->noteRoundTrip(attempt.sent_at, now);
  };
  if (attempt.cookie && !takeCookie(attempt, message, now)) return;
  if (attempt.edns && refusesEdns(message, attempt.id, query_)) {
    note_answer();
    return againWithoutEdns(attempt);
  }
  auto response = std::make_shared<StoredResponse>();
  // On an unprotected path any host could have set AD (RFC 4035 §4.9.3).
  switch (readUpstreamResponse(message, attempt.id, query_, *response, trustsAd(*attempt.server))) {
    case UpstreamVerdict::kAccepted:
      note_answer();
      return onAnswer(attempt, std::move(response), now);
    case UpstreamVerdict::kMismatch:
      return onNearMiss(attempt);
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

// Of an answer with our ID to a query with a cookie. False: it is not to be read. A stream is believed whatever it says:
// nobody else can write there.
bool ForwardExchange::takeCookie(Attempt& attempt, std::span<const uint8_t> message, BootClock::time_point now) {
  using CookieVerdict = UpstreamCookie::CookieVerdict;
  UpstreamCookie& cookie = attempt.server->cookie();
  const AnswerOptions options = optionsOf(message);
  const CookieVerdict verdict = cookie.judge(options, *attempt.cookie, now);
  const bool over_stream = &attempt == &stream_;
  if (over_stream && verdict == CookieVerdict::kMissing) cookie.noteStopped(now);
  if (!over_stream && (verdict == CookieVerdict::kWrong || verdict == CookieVerdict::kMissing)) {
    context_.counters.bad_cookies.add();
    if (verdict == CookieVerdict::kWrong) {
      onNearMiss(attempt);
      return false;
    }
    cookie_missing_ = true;
    againOverTcp(attempt);
    return false;
  }
  if (options.rcode == Rcode::kBadCookie) {
    onBadCookie(attempt, verdict == CookieVerdict::kGood);
    return false;
  }
  if (options.rcode != Rcode::kFormErr && options.rcode != Rcode::kNotImp) {
    cookie.noteTolerated();
  } else if (!cookie.isTolerated()) {  // it may be the cookie that the server does not know
    attempt.cookie_refused = true;
    again(attempt);
    return false;
  }
  return true;
}

// RFC 7873 §5.3: once more with the cookie that came, then over TCP, where none is needed.
void ForwardExchange::onBadCookie(Attempt& attempt, bool has_new) {
  const bool is_datagram = &attempt != &stream_;
  attempt.server->noteAnswer(BootClock::now());
  if (is_datagram && has_new && !attempt.cookie_renewed) {
    attempt.cookie_renewed = true;
    return again(attempt);
  }
  if (is_datagram) return againOverTcp(attempt);
  noteReason(&attempt, EdeCode::kNetworkError, "BADCOOKIE over TCP");
  failed_ = static_cast<uint16_t>(failed_ | bit(attempt.index));
  onUseless(attempt);
}

void ForwardExchange::onAnswer(Attempt& attempt, std::shared_ptr<const StoredResponse> response,
                               BootClock::time_point now) {
  const Rcode rcode = response->packed->rcode;
  const bool is_read = rcode != Rcode::kFormErr && rcode != Rcode::kNotImp;
  if (attempt.edns_refused && is_read) attempt.server->noteNoEdns();
  if (attempt.cookie_refused && !attempt.edns_refused && is_read) attempt.server->cookie().noteRefused(now);
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
  if (current_ != &stream_) {  // it has had its time, and something else is on its way
    if (!isWaiting()) proceed();
    return;
  }
  if (used_before && reconnects_ < kMaxReconnects) {  // it may merely have been closed when it was idle
    ++reconnects_;
    if (!attemptStream()) proceed();
    return;
  }
  giveServerUp(stream_, EdeCode::kNetworkError, reason);
  proceed();
}

void ForwardExchange::finishWith(std::shared_ptr<const StoredResponse> response) {
  const Rcode rcode = response->packed->rcode;
  finish({.response = std::move(response), .rcode = rcode, .ede = std::nullopt, .reason = {}});
}

void ForwardExchange::fail() {
  if (refusal_) return finishWith(std::move(refusal_));
  if (reason_.empty()) noteReason(current_, EdeCode::kNoReachableAuthority, "i/o timeout");
  finish({.response = nullptr,
          .rcode = Rcode::kServFail,
          .ede = ede_,
          .reason = std::move(reason_),
          .overloaded = overloaded_});
}

}  // namespace idetcd::resolver
