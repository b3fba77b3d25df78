#include "resolve/forward_exchange.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace idetcd::resolve {

using dns::EdeCode;
using dns::Rcode;

namespace {

constexpr uint8_t kMaxReconnects = 4;

// Failures of ours, not of the server.
bool isWantOfResources(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS || error == EAGAIN;
}

}  // namespace

ForwardExchange::ForwardExchange(ForwardContext& context, Owner& owner, const dns::Query& query,
                                 std::shared_ptr<const UpstreamServers> servers, const Order& order, bool stream_first)
    : context_(context),
      owner_(owner),
      query_(query),
      servers_(std::move(servers)),
      order_(order),
      stream_first_(stream_first),
      attempt_time_(this, [](void* self) { static_cast<ForwardExchange*>(self)->onAttemptTime(); }),
      total_time_(this, [](void* self) { static_cast<ForwardExchange*>(self)->fail(); }) {
  message_.assign(query);
  query_.message = message_.data();
  query_.size = query_.question_end;
}

void ForwardExchange::start() {
  context_.totals.arm(total_time_);
  proceed();
}

// On to the next server, until an attempt is on its way or nobody is left to ask.
void ForwardExchange::proceed() {
  do {
    server_ = choose();
    if (server_ == nullptr) return fail();
    stream_ = server_->isStreamOnly() || stream_first_;
    edns_ = server_->knowsEdns();
    edns_refused_ = false;
  } while (!attempt());
}

UpstreamServer* ForwardExchange::choose() {
  const size_t count = servers_->size();
  for (size_t i = 0; i < count; ++i) {
    const uint8_t index = order_[position_];
    position_ = static_cast<uint8_t>((position_ + 1u) % count);
    if (!isUsable(index) || (*servers_)[index]->isDown()) continue;
    server_index_ = index;
    return (*servers_)[index].get();
  }
  return chooseAny();
}

// All that could be asked are down, or so it seems: more likely that is a mistake than that the world has ended.
UpstreamServer* ForwardExchange::chooseAny() {
  std::array<uint8_t, Forwarder::kMaxTargets> usable;
  size_t count = 0;
  for (uint8_t i = 0; i < servers_->size(); ++i) {
    if (isUsable(i)) usable[count++] = i;
  }
  if (servers_->empty()) noteReason(EdeCode::kNoReachableAuthority, "there is no server to forward to");
  if (count == 0) return nullptr;
  if (context_.options.failfast_all_unhealthy_upstreams) {
    noteReason(EdeCode::kNoReachableAuthority, "no healthy upstream");
    return nullptr;
  }
  ++context_.counters.healthcheck_broken;
  server_index_ = usable[context_.random.below(static_cast<uint32_t>(count))];
  return (*servers_)[server_index_].get();
}

// False if it has failed at once: the next server's turn.
bool ForwardExchange::attempt() {
  client_.close();
  ticket_.drop();
  context_.attempts.arm(attempt_time_);
  ++context_.counters.attempts;
  return stream_ ? attemptStream() : attemptDatagram();
}

bool ForwardExchange::attemptStream() {
  const auto id = server_->streams().send(message_.octets(edns_), *this, ticket_);
  if (!id) {
    giveServerUp(EdeCode::kNetworkError, id.error().message);
    return false;
  }
  id_ = *id;
  return true;
}

bool ForwardExchange::attemptDatagram() {
  id_ = context_.random.next16();
  message_.setId(id_);
  const auto send = [this] {
    return context_.udp.send(server_->address().address, message_.octets(edns_), *this, client_);
  };
  int error = send();
  if (isWantOfResources(error) && owner_.makeRoom(*this)) error = send();
  if (error == 0) return true;
  if (isWantOfResources(error)) {
    failed_ = 0xffff;  // it would be the same with the others
    overloaded_ = true;
    noteReason(EdeCode::kNetworkError, std::strerror(error));
  } else {
    giveServerUp(EdeCode::kNetworkError, std::strerror(error));
  }
  return false;
}

// The same server once more, in another way.
void ForwardExchange::again() {
  if (!attempt()) proceed();
}

void ForwardExchange::giveServerUp(EdeCode ede, const std::string& reason) {
  noteReason(ede, reason);
  server_->noteFailure(reason);
  if (stream_ && stream_first_ && !server_->isStreamOnly()) {
    stream_first_ = false;  // the client came over TCP; this server may not want that
  } else {
    failed_ = static_cast<uint16_t>(failed_ | (1u << server_index_));
  }
}

void ForwardExchange::noteReason(EdeCode ede, const std::string& reason) {
  ede_ = ede;
  reason_ = server_ != nullptr ? fmt::format("{}: {}", server_->address().toString(), reason) : reason;
}

void ForwardExchange::onMessage(std::span<const uint8_t> message) {
  if (message.size() < dns::kHeaderSize || dns::load16(message.data()) != id_) {
    ++context_.counters.discarded;
    return;
  }
  if (edns_ && refusesEdns(message, id_, query_)) {
    server_->noteAnswer();
    edns_ = false;
    edns_refused_ = true;
    return again();
  }
  auto response = std::make_shared<StoredResponse>();
  switch (readUpstreamResponse(message, id_, query_, *response)) {
    case UpstreamVerdict::kAccepted:
      // On an unprotected path anybody could have set it (RFC 4035 §4.9.3).
      if (!trustsAd()) response->sections.authentic_data = false;
      return onAnswer(std::move(response));
    case UpstreamVerdict::kMismatch:
      ++context_.counters.discarded;
      return;
    case UpstreamVerdict::kTruncated:
      server_->noteAnswer();
      if (!std::exchange(stream_, true)) return again();
      noteReason(EdeCode::kNetworkError, "truncated over TCP");
      break;
    case UpstreamVerdict::kMalformed:
      noteReason(EdeCode::kNetworkError, "malformed response");
      break;
  }
  // It is there, but of no use for this question.
  failed_ = static_cast<uint16_t>(failed_ | (1u << server_index_));
  proceed();
}

void ForwardExchange::onAnswer(std::shared_ptr<const StoredResponse> response) {
  server_->noteAnswer();
  const Rcode rcode = response->sections.rcode;
  if (edns_refused_ && rcode != Rcode::kFormErr && rcode != Rcode::kNotImp) server_->noteNoEdns();
  finish({.response = std::move(response), .rcode = rcode, .ede = std::nullopt, .reason = {}});
}

void ForwardExchange::onAttemptTime() {
  noteReason(EdeCode::kNoReachableAuthority, "timed out");
  server_->noteFailure("timed out");
  ticket_.dropLate();
  stream_first_ = false;
  proceed();
}

void ForwardExchange::onError(int error) {
  giveServerUp(EdeCode::kNetworkError, std::strerror(error));
  proceed();
}

void ForwardExchange::onStreamFailed(const std::string& reason, bool used_before) {
  if (used_before && reconnects_ < kMaxReconnects) {  // it may merely have been closed when it was idle
    ++reconnects_;
    return again();
  }
  giveServerUp(EdeCode::kNetworkError, reason);
  proceed();
}

void ForwardExchange::fail() {
  if (reason_.empty()) noteReason(EdeCode::kNoReachableAuthority, "timed out");
  finish({.response = nullptr,
          .rcode = Rcode::kServFail,
          .ede = ede_,
          .reason = std::move(reason_),
          .overloaded = overloaded_});
}

}  // namespace idetcd::resolve
