#include "resolve/inner_question.h"

namespace idetcd::resolve {

namespace {

// Our questions have other IDs than the client's own, which may be on their way as well: what has the same ID counts as
// sent twice (resolver/waiting_clients).
constexpr uint16_t kIdChange = 0x5a5a;

class LateSink final : public ReplySink {
 public:
  LateSink(KeptReply reply, size_t question_end, LateAnswer::Then then)
      : reply_(std::move(reply)), question_end_(question_end), then_(std::move(then)) {}
  void send(std::span<const uint8_t> message) override { then_(std::move(reply_), {message, question_end_}); }
  bool pushBack() override { return reply_->pushBack(); }
  void noteDropped(DropReason reason) override { reply_->drop(reason); }

 private:
  KeptReply reply_;
  const size_t question_end_;
  const LateAnswer::Then then_;
};

}  // namespace

std::unique_ptr<ReplySink> LateAnswer::keepClient() {
  return std::make_unique<LateSink>(keep_(), question_end, std::move(then_));
}

InnerQuestion::InnerQuestion(const dns::Query& client, std::span<const uint8_t> name, uint16_t type, size_t limit,
                             HashSeed seed)
    : limit_(std::max<size_t>(limit, dns::kMinUdpPayload)),
      room_(std::make_unique_for_overwrite<uint8_t[]>(limit_ + dns::kReadSlack)) {
  static_assert(dns::kMaxQuestionSize <= dns::kMinUdpPayload);
  const size_t size = dns::writeQuestion(room_.get(), client.flags & (dns::kFlagRd | dns::kFlagCd | dns::kFlagAd), name,
                                         type, dns::code(dns::RrClass::kIn));
  dns::store16(room_.get(), dns::load16(client.message) ^ kIdChange);
  is_query_ = dns::parseQuery(room_.get(), size, seed, query_) == dns::ParseOutcome::kQuery;
  query_.has_edns = client.has_edns;
  query_.dnssec_ok = client.dnssec_ok;
  query_.udp_payload = client.udp_payload;
}

void LateExit::pass(DeferredReply& reply, std::span<const uint8_t> response) const {
  send(reply, [response](const dns::Query& query, size_t limit) {
    assert(response.size() <= limit);
    const uint16_t id = dns::load16(query.message);
    std::copy(response.begin(), response.end(), query.message);
    dns::store16(query.message, id);
    return std::min(response.size(), limit);
  });
}

}  // namespace idetcd::resolve
