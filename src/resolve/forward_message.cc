#include "resolve/forward_message.h"

#include <algorithm>
#include <cstring>

#include "dns/name_reader.h"

namespace idetcd::resolve {

void ForwardMessage::assign(const dns::Query& query) {
  question_end_ = query.question_end;
  std::memcpy(octets_.data(), query.message, question_end_);
  const auto flags = static_cast<uint16_t>((query.flags & (dns::kFlagRd | dns::kFlagCd)) | dns::kFlagAd);
  dns::store16(&octets_[2], flags);
  writeOpt(query.dnssec_ok);
}

void ForwardMessage::assignProbe(const dns::Name& domain, bool recursion_desired) {
  dns::store16(&octets_[2], recursion_desired ? uint16_t{dns::kFlagRd} : uint16_t{0});
  uint8_t* end = std::copy_n(domain.data(), domain.size(), &octets_[dns::kHeaderSize]);
  dns::store16(end, dns::code(dns::RrType::kNs));
  dns::store16(end + 2, dns::code(dns::RrClass::kIn));
  question_end_ = static_cast<uint16_t>(dns::kHeaderSize + domain.size() + kQuestionTail);
  writeOpt(false);
}

void ForwardMessage::writeOpt(bool dnssec_ok) {
  dns::store64(&octets_[4], uint64_t{1} << 48);  // one question; the additional count is set when it is sent
  uint8_t* opt = &octets_[question_end_];
  std::memset(opt, 0, dns::kOptSize);
  dns::store16(opt + 1, dns::code(dns::RrType::kOpt));
  dns::store16(opt + 3, dns::kDefaultUdpPayload);
  dns::store16(opt + 7, dnssec_ok ? 0x8000 : 0);
}

std::span<const uint8_t> ForwardMessage::octets(Form form) {
  dns::store16(&octets_[10], form == Form::kPlain ? 0 : 1);
  if (form == Form::kPlain) return {octets_.data(), question_end_};
  const size_t opt_end = question_end_ + dns::kOptSize;
  uint8_t* rdlength = &octets_[opt_end - 2];
  dns::store16(rdlength, 0);
  if (form == Form::kEdns) return {octets_.data(), opt_end};
  // RFC 7830 §3: the option's code and length, then bytes of zero.
  const size_t size = (opt_end + kOptionHead + kBlock - 1) / kBlock * kBlock;
  dns::store16(rdlength, static_cast<uint16_t>(size - opt_end));
  dns::store16(&octets_[opt_end], dns::code(dns::EdnsOption::kPadding));
  dns::store16(&octets_[opt_end + 2], static_cast<uint16_t>(size - opt_end - kOptionHead));
  std::fill(octets_.begin() + static_cast<ptrdiff_t>(opt_end + kOptionHead),
            octets_.begin() + static_cast<ptrdiff_t>(size), uint8_t{0});
  return {octets_.data(), size};
}

bool refusesEdns(std::span<const uint8_t> message, uint16_t id, const dns::Query& query) {
  if (message.size() < dns::kHeaderSize || dns::load16(message.data()) != id) return false;
  const uint16_t flags = dns::load16(&message[2]);
  if ((flags & dns::kFlagQr) == 0 || (flags & dns::kOpcodeMask) != 0) return false;
  const auto rcode = static_cast<dns::Rcode>(flags & dns::kRcodeMask);
  const size_t additionals = dns::load16(&message[10]);
  size_t end = dns::kHeaderSize;
  if (dns::load16(&message[4]) == 1) {  // if it repeats the question, it must be ours
    dns::ExpandedName name;
    end = dns::expandName(message, dns::kHeaderSize, name);
    if (end == 0 || message.size() - end < 4 || !dns::sameName(name.span(), query.name())) return false;
    if (dns::load16(&message[end]) != query.qtype || dns::load16(&message[end + 2]) != query.qclass) return false;
    end += 4;
  }
  if (rcode == dns::Rcode::kFormErr || rcode == dns::Rcode::kNotImp) return additionals == 0;
  // BADVERS: the low bits are zero, 1 is above them, and there is nothing but the OPT.
  return rcode == dns::Rcode::kNoError && additionals == 1 && dns::load32(&message[6]) == 0 &&
         message.size() - end >= dns::kOptSize && message[end] == 0 &&
         dns::load16(&message[end + 1]) == dns::code(dns::RrType::kOpt) && message[end + 5] == 1;
}

}  // namespace idetcd::resolve
