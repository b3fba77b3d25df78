#include "dns/response_rewriter.h"

#include "dns/response.h"

namespace idetcd::dns {

namespace {

// The messages are our own: as much as any of them needs.
constexpr size_t kAnyWork = 1'000'000;

}  // namespace

size_t writeRewritten(const RewrittenResponse& response, const Query& query, size_t limit) {
  ResponseBuilder builder(query, limit);
  if (!response.packed) return builder.finish(Rcode::kServFail, kFlagRa);
  if ((response.header_flags & kFlagTc) != 0) {  // the records may be larger still
    builder.truncate();
    return builder.finish(response.packed->rcode, response.header_flags & kFlagRa);
  }
  const size_t size = writePackedResponse(*response.packed, query, limit, {});
  constexpr uint16_t kHandlers = kFlagAa | kFlagRa;
  uint8_t* flags = query.message + 2;
  const uint16_t cut = response.is_cut ? kFlagTc : 0;  // RFC 2181 §9, over TCP too
  store16(flags, (load16(flags) & ~kHandlers) | (response.header_flags & kHandlers) | cut);
  return size;
}

ResponseRewriter::ResponseRewriter(const Query& query, const MessageView& response)
    : response_(response),
      question_end_(query.question_end),
      work_(kAnyWork),
      writer_(query, response.bytes.size(), work_),
      reader_(response.bytes, response.question_end) {
  const HeaderView header(response.bytes.data());
  sections_.rcode = header.rcode();
  sections_.authentic_data = (header.flags() & kFlagAd) != 0;
}

bool ResponseRewriter::isFull(std::span<const uint8_t> owner, size_t rdata_size) const {
  constexpr size_t kOthers = 256;  // OPT, with its options
  return question_end_ + writer_.body().size() + owner.size() + kRecordHeadSize + rdata_size + kOthers >
         kMaxMessageSize;
}

void ResponseRewriter::count(Section section) {
  ++(section == Section::kAnswer      ? sections_.answers
     : section == Section::kAuthority ? sections_.authorities
                                      : sections_.additionals);
}

// Begins `section`. Of a denial no record of the authority section may be left out alone.
void ResponseRewriter::closeSections(Section section) {
  const auto size = static_cast<uint16_t>(writer_.body().size());
  if (section > Section::kAnswer && section_ == Section::kAnswer) sections_.answer_size = sections_.proof_end = size;
  if (section > Section::kAuthority && section_ < Section::kAdditional) {
    sections_.authority_end = size;
    if (sections_.answers == 0) {
      sections_.proofs = sections_.authorities;
      sections_.proof_end = size;
    }
  }
  section_ = section;
}

void ResponseRewriter::readOpt(const RecordView& opt) {
  sections_.rcode = static_cast<Rcode>(code(sections_.rcode) | (opt.ttl >> 24 << 4));
  OptionReader options(response_.bytes.subspan(opt.rdata, opt.rdata_size));
  OptionView option;
  while (options.next(option) == ReadStep::kRead) {
    if (option.code != code(EdnsOption::kEde) || option.data.size() < sizeof(uint16_t)) continue;
    sections_.ede = load16(option.data.data());
    sections_.has_ede = true;
  }
}

RewrittenResponse ResponseRewriter::finish() {
  closeSections(Section::kAdditional);
  const uint16_t flags = HeaderView(response_.bytes.data()).flags() & (kFlagAa | kFlagRa | kFlagTc);
  return {.packed = PackedResponse::make(sections_, writer_.body(), writer_.ttlOffsets()),
          .is_cut = is_cut_,
          .header_flags = flags};
}

}  // namespace idetcd::dns
