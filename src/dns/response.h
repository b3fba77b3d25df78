// Writing a response in place: behind the question, in the buffer that the query came in. Any thread; no allocation.
//
// Records are appended section by section, in order. One that does not fit truncates the response: TC is set and
// everything but the question and OPT is left out (RFC 2181 §9), except in the additional section, where it is left out
// silently. NSID is written if nothing that must be there needs its room.
#pragma once

#include <cassert>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "dns/query.h"
#include "dns/wire.h"

namespace idetcd::dns {

//   00 | 00 29 | udp payload | ext-rcode version | DO 0 | rdlength | options
inline void storeOpt(uint8_t* opt, uint8_t extended_rcode, bool dnssec_ok) {
  store16(opt, 0);
  opt[2] = code(RrType::kOpt);
  store64(opt + 3, uint64_t{kDefaultUdpPayload} << 48 | uint64_t{extended_rcode} << 40 |
                       (dnssec_ok ? uint64_t{0x8000} << 16 : 0));
}

// One address record or two take two overlapping registers, and no call of memcpy.
inline void copyRecords(std::span<const uint8_t> records, uint8_t* to) {
  const size_t size = records.size();
  if (size - 16 > 16) {  // wraps below 16
    std::memcpy(to, records.data(), size);
    return;
  }
  const uint8_t* from = records.data();
  uint64_t words[4];
  std::memcpy(words, from, 16);
  std::memcpy(words + 2, from + size - 16, 16);
  std::memcpy(to, words, 16);
  std::memcpy(to + size - 16, words + 2, 16);
}

class ResponseBuilder {
 public:
  // `limit`: bytes that the whole response may take; the buffer has room for as many. REQUIRES: header, question and
  // OPT fit, as they do into any UDP payload (512).
  ResponseBuilder(const Query& query, size_t limit)
      : query_(query), pos_(query.question_end), limit_(limit), reserved_(query.has_edns ? kOptSize : 0) {
    if (!query.has_edns || query.nsid == nullptr) return;
    nsid_size_ = kOptionHead + query.nsid->size();
    if (fits(nsid_size_)) {
      reserved_ += nsid_size_;
    } else {
      nsid_size_ = 0;
    }
  }

  // Every answer of this response carries this Extended DNS Error (RFC 8914), if the client speaks EDNS. Call before
  // append.
  // `text` (EXTRA-TEXT), for people to read, must outlive the builder.
  void setEde(EdeCode ede, std::string_view text = {}) {
    if (!query_.has_edns || ede_) return;
    if (!fits(kEdeSize + text.size())) text = {};
    if (!makeRoom(kEdeSize)) return;
    ede_ = ede;
    ede_text_ = text;
    reserved_ += kEdeSize + text.size();
  }

  void addAnswer(std::span<const uint8_t> records, uint16_t count) { append(records, count, answers_); }
  void addAuthority(std::span<const uint8_t> records, uint16_t count) { append(records, count, authorities_); }
  // False if they did not fit.
  bool addAdditional(std::span<const uint8_t> records, uint16_t count) {
    if (!fits(records.size())) return false;
    append(records, count, additionals_);
    return true;
  }

  // All sections at once, if they fit: the records of the answer, authority and additional section in that order.
  bool setBody(std::span<const uint8_t> records, uint16_t answers, uint16_t authorities, uint16_t additionals) {
    if (!fits(records.size())) return false;
    append(records, answers, answers_);
    authorities_ = authorities;
    additionals_ = additionals;
    return true;
  }
  // As setBody(), for records none of which can be left out: NSID gives way to them.
  bool setWholeBody(std::span<const uint8_t> records, uint16_t answers, uint16_t authorities) {
    return makeRoom(records.size()) && setBody(records, answers, authorities, 0);
  }
  void truncate() { truncated_ = true; }
  // As truncate(), but these records of the answer section stay. REQUIRES: they fit, and nothing has been appended.
  void truncateTo(std::span<const uint8_t> records, uint16_t answers) {
    truncated_ = true;
    append(records, answers, kept_answers_);
    kept_size_ = records.size();
  }
  // Bytes that are left for records, if NSID is left out.
  size_t room() const { return limit_ - pos_ - (reserved_ - nsid_size_); }

  // The offset of the next record: where a name in it can be pointed to. And the octets written so far, for patching.
  size_t position() const { return pos_; }
  uint8_t* at(size_t offset) { return query_.message + offset; }

  // Writes header and OPT; returns the size of the response, at most the limit. `flags`: of kFlagAa, kFlagRa, kFlagAd.
  size_t finish(Rcode rcode, uint16_t flags) {
    uint8_t* message = query_.message;
    const bool has_question = query_.question_end > kHeaderSize;
    if (truncated_) {
      flags |= kFlagTc;
      pos_ = query_.question_end + kept_size_;
      answers_ = kept_answers_;
      authorities_ = additionals_ = 0;
    }
    // Opcode, RD and CD are the client's (RFC 1035 §4.1.1, RFC 4035 §3.2.2).
    flags |= kFlagQr | (query_.flags & (kOpcodeMask | kFlagRd | kFlagCd)) | (code(rcode) & kRcodeMask);
    store16(message + 2, flags);
    store64(message + 4, uint64_t{has_question} << 48 | uint64_t{answers_} << 32 | uint64_t{authorities_} << 16 |
                             (additionals_ + (query_.has_edns ? 1u : 0u)));
    assert(fits(0));  // what is reserved is all that is still written
    if (query_.has_edns) writeOpt(rcode);
    assert(pos_ <= limit_);
    return pos_;
  }

 private:
  static constexpr size_t kOptionHead = 4;
  static constexpr size_t kEdeSize = kOptionHead + 2;

  bool fits(size_t size) const { return limit_ >= pos_ && limit_ - pos_ >= reserved_ && free() >= size; }
  size_t free() const { return limit_ - pos_ - reserved_; }

  // As fits(), but NSID gives way: a client that has to ask again over TCP for its sake gains nothing.
  bool makeRoom(size_t size) {
    if (fits(size)) [[likely]]
      return true;
    reserved_ -= nsid_size_;
    if (fits(size)) {
      nsid_size_ = 0;
      return true;
    }
    reserved_ += nsid_size_;
    return false;
  }

  void append(std::span<const uint8_t> records, uint16_t count, uint16_t& counter) {
    if (!makeRoom(records.size())) {
      truncated_ = true;
      return;
    }
    if (!records.empty()) std::memcpy(query_.message + pos_, records.data(), records.size());
    pos_ += records.size();
    counter = static_cast<uint16_t>(counter + count);
  }

  void writeOpt(Rcode rcode) {
    uint8_t* opt = query_.message + pos_;
    storeOpt(opt, static_cast<uint8_t>(code(rcode) >> 4), query_.dnssec_ok);
    pos_ += kOptSize;
    if (ede_) {
      uint8_t info_code[2];
      store16(info_code, code(*ede_));
      writeOption(opt, EdnsOption::kEde, info_code, sizeof(info_code), ede_text_);
    }
    if (nsid_size_ > 0) writeOption(opt, EdnsOption::kNsid, query_.nsid->data(), query_.nsid->size());
  }

  void writeOption(uint8_t* opt, EdnsOption option, const void* data, size_t data_size, std::string_view text = {}) {
    const size_t size = data_size + text.size();
    uint8_t* p = query_.message + pos_;
    store16(p, code(option));
    store16(p + 2, static_cast<uint16_t>(size));
    std::memcpy(p + kOptionHead, data, data_size);
    if (!text.empty()) std::memcpy(p + kOptionHead + data_size, text.data(), text.size());
    pos_ += kOptionHead + size;
    store16(opt + 9, static_cast<uint16_t>(load16(opt + 9) + kOptionHead + size));
  }

  const Query& query_;
  size_t pos_;
  const size_t limit_;
  size_t reserved_;       // for OPT with its options
  size_t nsid_size_ = 0;  // of that, for NSID
  uint16_t answers_ = 0;
  uint16_t authorities_ = 0;
  uint16_t additionals_ = 0;
  bool truncated_ = false;
  size_t kept_size_ = 0;  // when truncated
  uint16_t kept_answers_ = 0;
  std::optional<EdeCode> ede_;
  std::string_view ede_text_;
};

// A response with nothing but its records, all of which are at hand: what almost every response is, in a few wide
// stores. The same octets as with a ResponseBuilder. Returns the size; 0 if it does not fit, or there is more to say.
// `counts`: as the header has them, all four, but without OPT; `flags`: as for finish(), and the rcode.
inline size_t writePlainResponse(const Query& query, std::span<const uint8_t> records, uint64_t counts, size_t limit,
                                 uint16_t flags) {
  const size_t end = size_t{query.question_end} + records.size() + (query.has_edns ? kOptSize : 0);
  if (end > limit || query.nsid != nullptr) return 0;
  uint8_t* message = query.message;
  store16(message + 2, kFlagQr | flags | (query.flags & (kOpcodeMask | kFlagRd | kFlagCd)));
  store64(message + 4, counts + (query.has_edns ? 1 : 0));
  copyRecords(records, message + query.question_end);
  if (query.has_edns) storeOpt(message + end - kOptSize, 0, query.dnssec_ok);
  return end;
}

// As above, with records of the answer section only.
inline size_t writePlainAnswer(const Query& query, std::span<const uint8_t> records, uint16_t count, size_t limit,
                               uint16_t flags) {
  return writePlainResponse(query, records, uint64_t{1} << 48 | uint64_t{count} << 32, limit, flags);
}

// The response to a query that parseQuery() refused with `query.error`. Returns its size; 0 where none can be made.
size_t writeErrorResponse(const Query& query, size_t limit);

}  // namespace idetcd::dns
