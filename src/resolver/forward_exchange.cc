#include "resolver/forward_exchange.h"

#include "dns/message_reader.h"

namespace idetcd::resolver {

using dns::EdeCode;
using dns::Rcode;

namespace {

constexpr uint16_t kMaxHeaderRcode = 15;  // what is above needs OPT
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
      candidates_(context, std::move(servers), order),
      transport_(stream_first ? Transport::kStreamFirst : Transport::kDatagrams),
      attempt_time_(this, [](void* self) { static_cast<ForwardExchange*>(self)->onTime(); }),
      total_time_(this, [](void* self) { static_cast<ForwardExchange*>(self)->onTotalTime(); }) {
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
  if (const auto next = candidates_.next()) return next;
  if (candidates_.isEmpty()) noteReason(EdeCode::kNoReachableAuthority, "there is no server to forward to");
  if (refusal_) return std::nullopt;
  // All that could be asked are down, or so it seems: more likely that is a mistake than that the world has ended.
  const auto down = candidates_.nextOfDown();
  if (!down) return std::nullopt;
  if (context_.options.failfast_all_unhealthy_upstreams) {
    noteReason(EdeCode::kNoReachableAuthority, "no healthy upstream");
    return std::nullopt;
  }
  context_.counters.healthcheck_broken.add();
  return down;
}

void ForwardExchange::onNobodyLeft() {
  if (waitForEarlier() || askOverTcp() || askOverNewConnection()) return;
  if (refusal_) return finishWith(std::move(refusal_));
  if (!isWaiting()) return fail();
  attempt_time_.disarm();  // it may only be late: a resolver that asks others may take as long as we do
}

bool ForwardExchange::isWaiting() const {
  return stream_.isWaiting() || std::ranges::any_of(datagrams_, &Datagram::isWaiting);
}

// The other datagram, if it has not had its time yet.
bool ForwardExchange::waitForEarlier() {
  const auto now = BootClock::now();
  for (Datagram& datagram : datagrams_) {
    if (!datagram.isWaiting() || now - datagram.sent_at >= context_.options.attempt_time) continue;
    current_ = &datagram;
    time_ = Time::kAttempt;
    context_.attempts.arm(attempt_time_);
    return true;
  }
  return false;
}

// A path that loses datagrams may let TCP through, which repeats what is lost at a rate that fits the path. Not for a
// server that has been silent to all: it would be given connections without end.
bool ForwardExchange::askOverTcp() {
  if (std::exchange(tcp_tried_, true) || !candidates_.mayAskMore()) return false;
  candidates_.noteAttempt();
  for (Datagram& datagram : datagrams_) {
    if (!datagram.isWaiting()) continue;
    UpstreamServer& server = *datagram.to.server;
    if (server.isDown()) continue;
    if (!server.hasAnsweredSince(datagram.sent_at) && server.streams().connectionCount() >= kMaxTcpTrials) continue;
    stream_.to = datagram.to;
    return attemptStream();
  }
  return false;
}

// Not if it is in doubt already whether the server is there at all.
bool ForwardExchange::askOverTcpSoon() {
  return !current_->to.server->isAvoided(BootClock::now()) && context_.extra_over_tcp.take() && askOverTcp();
}

// A path that has forgotten a connection (a firewall, an address translator) says nothing, and a server that is gone
// neither. Only once: a connection that was opened for this question would show nothing new.
bool ForwardExchange::askOverNewConnection() {
  if (!stream_.ticket.isSilentSince(stream_.sent_at)) return false;
  return attemptStream(stream_.sent_at);
}

// Whether the question has gone over another connection, or was given up, before the attempt's time. Where others have
// found the connection silent too, there is one that they share already.
bool ForwardExchange::leaveSilentConnection() {
  if (!stream_.ticket.isSilentSince(stream_.sent_at)) return false;
  if (!stream_.ticket.isLate() && !context_.extra_over_tcp.take()) return false;
  stream_.ticket.noteLate();
  if (!askOverNewConnection()) proceed();
  return true;
}

// False if it has failed at once: the next server's turn.
bool ForwardExchange::attempt(uint8_t index) {
  candidates_.noteAttempt();
  if (mayUseDatagrams(candidates_.at(index))) return attemptDatagram(begin(index));
  candidates_.noteTried(index);
  stream_.to = targetOf(index);
  return attemptStream();
}

// Instead of what is on its way over a stream. `proven`: as StreamPool::send().
bool ForwardExchange::attemptStream(BootClock::time_point proven) {
  UpstreamServer& server = *stream_.to.server;
  StreamPool& streams = server.streams();
  current_ = &stream_;
  stream_.giveUp();
  time_ = Time::kAttempt;
  context_.attempts.arm(attempt_time_);
  context_.counters.attempts.add();
  stream_.sent_at = BootClock::now();
  stream_.repeated = false;
  server.noteAsked(stream_.sent_at);
  const size_t connections = streams.connectionCount();
  const auto id = streams.send(messageFor(stream_), stream_, stream_.ticket, proven);
  if (!id && id.error().code == ErrorCode::kNoResources) {
    noteWantOfResources(stream_, id.error().message);
    leaveServer(stream_);
    return false;
  }
  if (!id) {
    giveServerUp(stream_, EdeCode::kNetworkError, id.error().message);
    return false;
  }
  stream_.id = *id;
  server.noteConnection(streams.connectionCount() == connections);
  if (proven == BootClock::time_point{} && stream_.ticket.isSilentSince(stream_.sent_at)) {
    time_ = Time::kRepetition;
    context_.timeouts.arm(attempt_time_, 2 * server.roundTrip().timeout());
  }
  return true;
}

ForwardExchange::Target ForwardExchange::targetOf(uint8_t index) const {
  UpstreamServer& server = candidates_.at(index);
  return {.server = &server, .index = index, .edns = server.knowsEdns()};
}

// In the place of one without a use, or of the older one.
ForwardExchange::Datagram& ForwardExchange::begin(uint8_t index) {
  auto& [first, second] = datagrams_;
  Datagram& datagram = !first.isWaiting()                                      ? first
                       : !second.isWaiting() || second.sent_at < first.sent_at ? second
                                                                               : first;
  if (datagram.isWaiting()) datagram.awaitLate();
  datagram.giveUp();
  datagram.to = targetOf(index);
  candidates_.noteTried(index);
  return datagram;
}

// 0 or errno.
int ForwardExchange::sendDatagram(Datagram& datagram) {
  context_.counters.attempts.add();
  datagram.id = context_.random.next16();
  datagram.sent_at = BootClock::now();
  datagram.repeated = false;
  UpstreamServer& server = *datagram.to.server;
  server.noteAsked(datagram.sent_at);
  message_.setId(datagram.id);
  const auto message = messageFor(datagram);
  const int error = context_.send(server.address().address, message, datagram, datagram.client);
  if (error != 0) return error;
  noteOwnAddress(datagram);
  current_ = &datagram;
  time_ = Time::kUsual;
  context_.timeouts.arm(attempt_time_, server.roundTrip().timeout());
  return 0;
}

bool ForwardExchange::attemptDatagram(Datagram& datagram) {
  int error = sendDatagram(datagram);
  if (isWantOfResources(error) && owner_.makeRoom(*this)) error = sendDatagram(datagram);
  if (error == 0) return true;
  if (isWantOfResources(error)) {
    candidates_.noteAllFailed();  // it would be the same with the others
    noteWantOfResources(datagram, std::strerror(error));
  } else {
    giveServerUp(datagram, EdeCode::kNetworkError, std::strerror(error));
  }
  return false;
}

// The message to send, with the cookie of this moment. Where nobody knows whether the server minds cookies, a message
// that is sent again has none: it may be the cookie that keeps it from answering.
std::span<const uint8_t> ForwardExchange::messageFor(Attempt& attempt) {
  UpstreamServer& server = *attempt.to.server;
  const auto form = server.form(attempt.to.edns);
  UpstreamCookie& cookie = server.cookie();
  attempt.cookie.reset();
  const bool doubtful = attempt.to.cookie_refused || (attempt.repeated && !cookie.isTolerated());
  ForwardMessage::Extras extras{.cookie = {}, .keepalive = attempt.isStream() && server.asksKeepalive()};
  if (form != ForwardMessage::Form::kEdns || doubtful) return message_.bytes(form, extras);
  extras.cookie = cookie.option(BootClock::now());
  if (!extras.cookie.empty()) attempt.cookie = cookie.client();
  return message_.bytes(form, extras);
}

void ForwardExchange::noteOwnAddress(const Datagram& datagram) {
  UpstreamCookie& cookie = datagram.to.server->cookie();
  if (!cookie.wantsOwnAddress(datagram.sent_at)) return;
  if (const auto own = datagram.client.localIp()) cookie.noteOwnAddress(*own, context_.random, datagram.sent_at);
}

void ForwardExchange::againWithoutEdns(Attempt& attempt) {
  attempt.to.edns = false;
  attempt.to.edns_refused = true;
  again(attempt);
}

// The same server, with what `attempt` says now.
void ForwardExchange::again(Attempt& attempt) {
  if (attempt.isStream()) {
    if (!attemptStream()) proceed();
  } else if (current_->isStream()) {
    attempt.giveUp();  // something better is on its way
  } else if (!attemptDatagram(static_cast<Datagram&>(attempt))) {
    proceed();
  }
}

void ForwardExchange::againOverTcp(Attempt& attempt) {
  attempt.giveUp();
  if (current_->isStream()) return;  // it is on its way
  stream_.to = attempt.to;
  if (!attemptStream()) proceed();
}

void ForwardExchange::giveServerUp(const Attempt& attempt, EdeCode ede, const std::string& reason) {
  noteReason(attempt, ede, reason);
  attempt.to.server->noteFailure(reason);
  if (attempt.isStream()) noteStreamFailed();
  leaveServer(attempt);
}

// The question that goes over TCP because a cookie was missing cannot: the server may have no TCP.
void ForwardExchange::noteStreamFailed() {
  if (std::exchange(stream_.cookie_missing, false)) stream_.to.server->cookie().noteStopped(BootClock::now());
}

void ForwardExchange::leaveServer(const Attempt& attempt) {
  if (attempt.isStream() && transport_ == Transport::kStreamFirst && !attempt.to.server->isStreamOnly()) {
    transport_ = Transport::kDatagrams;  // this server may not want TCP
    candidates_.forgetTried(attempt.to.index);
  } else {
    candidates_.noteFailed(attempt.to.index);
  }
}

void ForwardExchange::noteReason(EdeCode ede, const std::string& reason) {
  failure_.ede = ede;
  failure_.reason = reason;
}

void ForwardExchange::noteReason(const Attempt& attempt, EdeCode ede, const std::string& reason) {
  noteReason(ede, fmt::format("{}: {}", attempt.to.server->address().toString(), reason));
}

void ForwardExchange::noteWantOfResources(const Attempt& attempt, const std::string& reason) {
  failure_.overloaded = true;
  noteReason(attempt, EdeCode::kNetworkError, reason);
}

void ForwardExchange::onTime() {
  switch (time_) {
    case Time::kUsual:
      if (onUsualTime()) return;
      break;
    case Time::kRepetition:
      if (onRepetitionTime()) return;
      break;
    case Time::kAttempt:
      break;
  }
  time_ = Time::kAttempt;
  if (!waitForRest()) onAttemptTime();
}

// Whether something else is waited for than the rest of the attempt's time.
bool ForwardExchange::onUsualTime() {
  auto& lost = static_cast<Datagram&>(*current_);
  UpstreamServer& server = *lost.to.server;
  time_ = Time::kRepetition;
  server.noteSilence(lost.sent_at, BootClock::now());
  if (sendExtra(lost)) return true;
  // Another server is asked before this one is asked over TCP.
  if (tcp_tried_ || candidates_.next()) return false;
  context_.timeouts.arm(attempt_time_, server.roundTrip().timeout());
  return true;
}

// As onUsualTime().
bool ForwardExchange::onRepetitionTime() { return current_->isStream() ? leaveSilentConnection() : askOverTcpSoon(); }

// False: the attempt has had its time.
bool ForwardExchange::waitForRest() {
  const auto left = current_->sent_at + context_.options.attempt_time - BootClock::now();
  if (left.count() <= 0) return false;
  context_.timeouts.arm(attempt_time_, left);  // or for a part of it
  return true;
}

// Whether another datagram has gone to another server, which then has its time. A server that has fallen silent
// altogether is left for one that has not, whatever the budget: what goes to the second is no repetition.
bool ForwardExchange::sendExtra(Datagram& lost) {
  const auto equal = candidates_.nextEqual();
  if (equal && lost.to.server->isSuspect()) {
    if (!extra_spent_) extra_spent_ = context_.extra.take();
    if (askEqual(*equal)) return true;
  }
  if (extra_spent_ || !context_.extra.take()) return false;
  extra_spent_ = true;
  if (equal && candidates_.mayBeAsked(*equal) && askEqual(*equal)) return true;
  context_.counters.attempts.add();
  context_.counters.repeated.add();
  lost.repeated = true;
  message_.setId(lost.id);
  lost.client.sendAgain(messageFor(lost));  // if that fails, the first may yet be answered
  return false;
}

// False if it cannot be sent; what was sent before is waited for.
bool ForwardExchange::askEqual(uint8_t index) {
  candidates_.noteAttempt();
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
  UpstreamServer& server = *current_->to.server;
  noteReason(*current_, EdeCode::kNoReachableAuthority, "i/o timeout");
  server.noteFailure("i/o timeout");
  noteSilentBefore();
  if (current_->isStream()) {
    noteStreamFailed();
    stream_.ticket.noteLate();
    if (transport_ == Transport::kStreamFirst) {
      if (!server.isStreamOnly()) candidates_.forgetTried(stream_.to.index);
      transport_ = Transport::kDatagrams;
    }
  }
  proceed();
}

// Servers that the question has moved on from have had their time by now, too, and are no better for that.
void ForwardExchange::noteSilentBefore() {
  const auto before = BootClock::now() - context_.options.attempt_time;
  for (const Datagram& datagram : datagrams_) {
    if (&datagram == current_ || !datagram.isWaiting() || datagram.sent_at > before) continue;
    UpstreamServer& server = *datagram.to.server;
    if (&server != current_->to.server && !server.hasAnsweredSince(datagram.sent_at)) server.noteFailure("i/o timeout");
  }
}

// It may end, and destroy this.
void ForwardExchange::onNearMiss(Attempt& attempt) {
  context_.counters.discarded.add();
  if (attempt.isStream() || ++near_misses_ != kMaxNearMisses) return;
  context_.counters.suspected.add();
  transport_ = Transport::kStreamOnly;
  tcp_tried_ = true;
  for (Datagram& datagram : datagrams_) {
    if (&datagram != &attempt) datagram.giveUp();
  }
  againOverTcp(attempt);
}

bool ForwardExchange::isInOtherCase(const Attempt& attempt, std::span<const uint8_t> message) const {
  return context_.options.use_caps_for_id && !attempt.isStream() && dns::matchQuestion(message, query_) != 0 &&
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
  UpstreamServer& server = *attempt.to.server;
  const auto note_answer = [&] {
    server.noteAnswer(now);
    server.noteResponse(dns::HeaderView(message.data()).rcode(), now - attempt.sent_at);
    if (!attempt.repeated) server.noteRoundTrip(attempt.sent_at, now);
  };
  if (attempt.cookie && !takeCookie(attempt, message, now)) return;
  if (attempt.to.edns && refusesEdns(message, attempt.id, query_)) {
    note_answer();
    return againWithoutEdns(attempt);
  }
  auto response = std::make_shared<StoredResponse>();
  // On an unprotected path any host could have set AD (RFC 4035 §4.9.3).
  switch (readUpstreamResponse(message, attempt.id, query_, *response, trustsAd(server))) {
    case UpstreamVerdict::kAccepted:
      note_answer();
      return onAnswer(attempt, std::move(response), now);
    case UpstreamVerdict::kMismatch:
      return onNearMiss(attempt);
    case UpstreamVerdict::kTruncated:
      note_answer();
      if (!attempt.isStream()) return againOverTcp(attempt);
      noteReason(attempt, EdeCode::kNetworkError, "truncated over TCP");
      break;
    case UpstreamVerdict::kMalformed:
      noteReason(attempt, EdeCode::kNetworkError, "malformed response");
      break;
  }
  candidates_.noteFailed(attempt.to.index);
  onUseless(attempt);
}

// Of an answer with our ID to a query with a cookie. False: it is not to be read. A stream is believed whatever it says:
// nobody else can write there.
bool ForwardExchange::takeCookie(Attempt& attempt, std::span<const uint8_t> message, BootClock::time_point now) {
  using CookieVerdict = UpstreamCookie::CookieVerdict;
  UpstreamCookie& cookie = attempt.to.server->cookie();
  const AnswerOptions options = optionsOf(message);
  const CookieVerdict verdict = cookie.judge(options, *attempt.cookie, now);
  const bool over_stream = attempt.isStream();
  if (over_stream && verdict == CookieVerdict::kMissing) cookie.noteStopped(now);
  if (!over_stream && (verdict == CookieVerdict::kWrong || verdict == CookieVerdict::kMissing)) {
    context_.counters.bad_cookies.add();
    if (verdict == CookieVerdict::kWrong) {
      onNearMiss(attempt);
      return false;
    }
    stream_.cookie_missing = true;
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
    attempt.to.cookie_refused = true;
    again(attempt);
    return false;
  }
  return true;
}

// RFC 7873 §5.3: once more with the cookie that came, then over TCP, where none is needed.
void ForwardExchange::onBadCookie(Attempt& attempt, bool has_new) {
  attempt.to.server->noteAnswer(BootClock::now());
  if (!attempt.isStream() && has_new && !std::exchange(attempt.to.cookie_renewed, true)) return again(attempt);
  if (!attempt.isStream()) return againOverTcp(attempt);
  onHopFailure(attempt, Rcode::kBadCookie);
}

// An rcode above 15 is for whoever has sent the message, and says nothing of the name (RFC 6891 §6.1.3, RFC 7873 §5.3).
// Once more without what it is about; a server that says it to that, too, is of no use. It came in an OPT record: the
// server knows EDNS.
void ForwardExchange::onHopFailure(Attempt& attempt, Rcode rcode) {
  if (std::exchange(attempt.to.edns, false)) return again(attempt);
  noteReason(attempt, EdeCode::kNetworkError, dns::kRcodeNames.toString(dns::code(rcode)));
  candidates_.noteFailed(attempt.to.index);
  onUseless(attempt);
}

void ForwardExchange::onAnswer(Attempt& attempt, std::shared_ptr<const StoredResponse> response,
                               BootClock::time_point now) {
  const Rcode rcode = response->packed->rcode;
  if (dns::code(rcode) > kMaxHeaderRcode) return onHopFailure(attempt, rcode);
  const bool is_read = rcode != Rcode::kFormErr && rcode != Rcode::kNotImp;
  UpstreamServer& server = *attempt.to.server;
  if (attempt.to.edns_refused && is_read) server.noteNoEdns();
  if (attempt.to.cookie_refused && !attempt.to.edns_refused && is_read) server.cookie().noteRefused(now);
  const auto& failover = context_.options.failover;
  if (std::find(failover.begin(), failover.end(), rcode) != failover.end()) {
    refusal_ = std::move(response);
    return onUseless(attempt);
  }
  candidates_.noteAnswered(attempt.to.index, now);
  server.noteUseful();
  attempt.giveUp();
  for (Datagram& datagram : datagrams_) {
    if (datagram.isWaiting() && datagram.to.server != &server) datagram.awaitLate();
  }
  finishWith(std::move(response));
}

// The server is there, but what it says is of no use for this question.
void ForwardExchange::onUseless(Attempt& attempt) {
  candidates_.noteRejected(attempt.to.index);
  attempt.giveUp();
  if (&attempt == current_) proceed();
}

void ForwardExchange::onDatagramError(Datagram& datagram, int error) {
  giveServerUp(datagram, EdeCode::kNetworkError, std::strerror(error));
  datagram.giveUp();
  if (&datagram == current_) proceed();
}

void ForwardExchange::onStreamFailed(const std::string& reason, bool used_before) {
  if (!current_->isStream()) {  // it has had its time, and something else is on its way
    if (!isWaiting()) proceed();
    return;
  }
  if (used_before && stream_.reconnects < kMaxReconnects) {  // it may merely have been closed when it was idle
    ++stream_.reconnects;
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

// An attempt that has had its time beside another way to the same server (TCP) counts as well.
void ForwardExchange::onTotalTime() {
  const auto before = BootClock::now() - context_.options.attempt_time;
  for (const Datagram& datagram : datagrams_) {
    const bool is_over = datagram.isWaiting() && datagram.sent_at <= before;
    if (is_over && !datagram.to.server->hasAnsweredSince(datagram.sent_at)) datagram.to.server->noteFailure("i/o timeout");
  }
  fail();
}

void ForwardExchange::fail() {
  if (refusal_) return finishWith(std::move(refusal_));
  if (failure_.reason.empty()) noteReason(*current_, EdeCode::kNoReachableAuthority, "i/o timeout");
  finish(failure_);
}

}  // namespace idetcd::resolver
