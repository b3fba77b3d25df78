#include "resolve/signed_query.h"

#include <ctime>

#include "dns/response.h"

namespace idetcd::resolve {

namespace {

using tsig::QueryCheck;
using tsig::TsigError;

uint64_t secondsNow() { return static_cast<uint64_t>(std::time(nullptr)); }

// Signs each message of a stream.
class SignedStream final : public MessageStream {
 public:
  SignedStream(std::unique_ptr<MessageStream> stream, tsig::Signer signer, size_t record_size)
      : stream_(std::move(stream)), signer_(std::move(signer)), record_size_(record_size) {}
  std::optional<size_t> next(std::span<uint8_t> room) override {
    const auto size = stream_->next(room.first(room.size() - record_size_));
    return size && *size > 0 ? signer_.sign(room, *size, secondsNow()) : size;
  }

 private:
  const std::unique_ptr<MessageStream> stream_;
  tsig::Signer signer_;
  const size_t record_size_;
};

class SigningSink final : public ReplySink {
 public:
  SigningSink(std::unique_ptr<ReplySink> sink, tsig::Signer signer, size_t record_size)
      : sink_(std::move(sink)), signer_(std::move(signer)), record_size_(record_size) {}
  void send(std::span<const uint8_t> message) override {
    std::vector<uint8_t> buffer(message.size() + record_size_);
    std::ranges::copy(message, buffer.begin());
    sink_->send(std::span(buffer).first(signer_.sign(buffer, message.size(), secondsNow())));
  }
  void sendAll(std::unique_ptr<MessageStream> stream) override {
    sink_->sendAll(std::make_unique<SignedStream>(std::move(stream), signer_, record_size_));
  }
  // Never: what would be asked anew is the question alone, without its signature.
  bool pushBack() override { return false; }
  void noteDropped(DropReason reason) override { sink_->noteDropped(reason); }

 private:
  const std::unique_ptr<ReplySink> sink_;
  tsig::Signer signer_;
  const size_t record_size_;
};

class SigningDeferrer final : public ReplyDeferrer {
 public:
  SigningDeferrer(ReplyDeferrer& deferrer, const tsig::Signer& signer, size_t record_size)
      : deferrer_(deferrer), signer_(signer), record_size_(record_size) {}
  std::unique_ptr<ReplySink> keepClient() override {
    return std::make_unique<SigningSink>(deferrer_.keepClient(), signer_, record_size_);
  }

 private:
  ReplyDeferrer& deferrer_;
  const tsig::Signer& signer_;
  const size_t record_size_;
};

// Of a response that a TSIG record of this size follows. A header, the question and OPT fit in any case.
size_t limitBefore(size_t record_size, const dns::Query& query, const Request& request) {
  const size_t least = size_t{query.question_end} + dns::kOptSize;
  return std::max(request.response_limit - std::min(request.response_limit, record_size), least);
}

QueryOutcome answerRefused(const QueryCheck& check, const dns::Query& query, const Request& request, uint16_t flags) {
  constexpr size_t kUnsignedSize = 2 * dns::kMaxNameLength + 26;
  const bool is_signed = check.error == TsigError::kBadTime || check.error == TsigError::kBadTrunc;
  const size_t record_size = is_signed ? tsig::Signer::recordSize(*check.key) + 6 : kUnsignedSize;
  dns::ResponseBuilder response(query, limitBefore(record_size, query, request));
  size_t size = response.finish(dns::Rcode::kNotAuth, flags);
  const std::span<uint8_t> buffer(query.message, size + record_size);
  if (is_signed) {
    tsig::Signer signer(*check.key, check.record.mac);
    size = signer.signError(buffer, size, check.error, check.record, secondsNow());
  } else {
    size = tsig::appendUnsigned(buffer, size, check.error, check.record);
  }
  return QueryOutcome::answer(size);
}

}  // namespace

bool SignatureRules::isRequiredOf(const dns::Query& query) const {
  if (!requires_all && std::ranges::find(required, query.qtype) == required.end()) return false;
  return std::ranges::any_of(zones, [&](const dns::Name& zone) { return dns::isNameWithin(query.name(), zone); });
}

QueryOutcome answerSigned(const std::shared_ptr<const SignatureRules>& rules, const dns::Query& query,
                          const Request& request, uint16_t flags,
                          const std::function<QueryOutcome(const Request&)>& ask) {
  const QueryCheck check =
      tsig::checkQuery({query.message, query.size}, query.tsig_offset, rules->keys, secondsNow());
  if (check.kind == QueryCheck::Kind::kMalformed)
    return QueryOutcome::answer(dns::ResponseBuilder(query, request.response_limit).finish(dns::Rcode::kFormErr, flags));
  if (check.kind == QueryCheck::Kind::kRefused) return answerRefused(check, query, request, flags);
  tsig::Signer signer(*check.key, check.record.mac);
  const size_t record_size = tsig::Signer::recordSize(*check.key);
  Request inner = request;
  inner.response_limit = limitBefore(record_size, query, request);
  inner.signed_by = rules.get();
  std::optional<SigningDeferrer> deferrer;
  if (request.deferrer != nullptr) inner.deferrer = &deferrer.emplace(*request.deferrer, signer, record_size);
  QueryOutcome outcome = ask(inner);
  if (outcome.kind == QueryOutcome::Kind::kAnswer)
    outcome.size = signer.sign({query.message, outcome.size + record_size}, outcome.size, secondsNow());
  return outcome;
}

}  // namespace idetcd::resolve
