#include "resolve/inner_question.h"

namespace idetcd::resolve {

namespace {

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

bool writeInnerQuestion(const dns::Query& client, std::span<const uint8_t> name, uint16_t type, uint16_t id_change,
                        HashSeed seed, uint8_t* room, dns::Query& query) {
  const size_t size = dns::writeQuestion(room, client.flags & (dns::kFlagRd | dns::kFlagCd | dns::kFlagAd), name, type,
                                         dns::code(dns::RrClass::kIn));
  dns::store16(room, dns::load16(client.message) ^ id_change);
  const bool is_query = dns::parseQuery(room, size, seed, query) == dns::ParseOutcome::kQuery;
  query.has_edns = client.has_edns;
  query.dnssec_ok = client.dnssec_ok;
  query.udp_payload = client.udp_payload;
  return is_query;
}

InnerQuestion::InnerQuestion(const dns::Query& client, std::span<const uint8_t> name, uint16_t type, size_t limit,
                             HashSeed seed)
    : limit_(std::max<size_t>(limit, dns::kMinUdpPayload)),
      room_(std::make_unique_for_overwrite<uint8_t[]>(limit_ + dns::kReadSlack)) {
  static_assert(dns::kMaxQuestionSize <= dns::kMinUdpPayload);
  is_query_ = writeInnerQuestion(client, name, type, kIdChange, seed, room_.get(), query_);
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
