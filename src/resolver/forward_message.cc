#include "resolver/forward_message.h"

#include "dns/message_reader.h"
#include "dns/record.h"

namespace idetcd::resolver {

namespace {

constexpr size_t kQuestionTail = 4;  // type and class
constexpr uint8_t kCaseBit = 0x20;   // the difference between the cases of an ASCII letter

}  // namespace

void ForwardMessage::assign(const dns::Query& query, size_t udp_payload) {
  question_end_ = query.question_end;
  std::memcpy(bytes_.data(), query.message, question_end_);
  const auto flags = static_cast<uint16_t>((query.flags & (dns::kFlagRd | dns::kFlagCd)) | dns::kFlagAd);
  dns::store16(&bytes_[2], flags);
  writeOpt(query.dnssec_ok, udp_payload);
}

void ForwardMessage::assignProbe(const dns::Name& domain, bool recursion_desired) {
  question_end_ =
      static_cast<uint16_t>(dns::writeQuestion(bytes_.data(), recursion_desired ? dns::kFlagRd : 0, domain.wire(),
                                               dns::code(dns::RrType::kNs), dns::code(dns::RrClass::kIn)));
  writeOpt(false, dns::kDefaultUdpPayload);
}

void ForwardMessage::drawCase(SecureRandom& random) {
  // A label's length is below 64, and no letter.
  for (size_t i = dns::kHeaderSize; i < question_end_ - kQuestionTail; ++i) {
    const auto folded = static_cast<uint8_t>(bytes_[i] | kCaseBit);
    if (folded < 'a' || folded > 'z') continue;
    bytes_[i] = static_cast<uint8_t>(folded ^ (random.below(2) != 0 ? kCaseBit : 0));
  }
}

bool ForwardMessage::hasSameCase(std::span<const uint8_t> message) const {
  const size_t size = question_end_ - dns::kHeaderSize - kQuestionTail;
  return std::memcmp(message.data() + dns::kHeaderSize, bytes_.data() + dns::kHeaderSize, size) == 0;
}

void ForwardMessage::writeOpt(bool dnssec_ok, size_t udp_payload) {
  dns::store64(&bytes_[4], uint64_t{1} << 48);  // one question; the additional count is set when it is sent
  constexpr size_t kPayloadAt = 3;              // behind the root's name and the type
  dns::storeOpt(&bytes_[question_end_], 0, dnssec_ok);
  dns::store16(&bytes_[question_end_ + kPayloadAt], static_cast<uint16_t>(udp_payload));
}

std::span<const uint8_t> ForwardMessage::bytes(Form form, const Extras& extras) {
  dns::store16(&bytes_[10], form == Form::kPlain ? 0 : 1);
  if (form == Form::kPlain) return {bytes_.data(), question_end_};
  uint8_t* opt = &bytes_[question_end_];
  const uint8_t* end = opt + dns::kOptSize;
  dns::store16(opt + dns::kOptSize - 2, 0);  // the options of the last time
  if (extras.keepalive) end = dns::addOption(opt, dns::EdnsOption::kTcpKeepalive, 0);
  if (form == Form::kEdns) {
    const auto& cookie = extras.cookie;
    if (!cookie.empty()) end = dns::putBytes(dns::addOption(opt, dns::EdnsOption::kCookie, cookie.size()), cookie);
    return {bytes_.data(), end};
  }
  // RFC 7830 §3: the option's code and length, then bytes of zero.
  const auto opt_end = static_cast<size_t>(end - bytes_.data());
  const size_t size = (opt_end + dns::kOptionHeadSize + kBlock - 1) / kBlock * kBlock;
  const size_t padding = size - opt_end - dns::kOptionHeadSize;
  std::memset(dns::addOption(opt, dns::EdnsOption::kPadding, padding), 0, padding);
  return {bytes_.data(), size};
}

bool refusesEdns(std::span<const uint8_t> message, uint16_t id, const dns::Query& query) {
  if (message.size() < dns::kHeaderSize) return false;
  const dns::HeaderView header(message.data());
  if (header.id() != id || !header.isResponse() || header.opcode() != dns::Opcode::kQuery) return false;
  // If it repeats the question, it must be ours.
  if (header.questions() == 1 && dns::matchQuestion(message, query) == 0) return false;
  return (header.rcode() == dns::Rcode::kFormErr || header.rcode() == dns::Rcode::kNotImp) && header.additionals() == 0;
}

}  // namespace idetcd::resolver
