// Writing a response in place: behind the question, in the buffer that the query came in. Any thread; no allocation.
//
// Records are appended section by section, in order. One that does not fit truncates the response: TC is set and
// everything but the question and OPT is left out (RFC 2181 §9), except in the additional section, where it is left out
// silently, and by cutHere(). The cookie and the idle time-out are written before all else that may be left out; NSID, if nothing that
// must be there needs its room. Padding (RFC 7830) fills what is left up to a multiple of kPaddedBlock.
#pragma once

#include "dns/query.h"
#include "dns/record.h"
#include "dns/wire.h"

namespace idetcd::dns {

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

inline constexpr size_t kCookieOptionSize = kOptionHeadSize + Cookie::kClientSize + Cookie::kServerSize;
inline constexpr size_t kKeepaliveOptionSize = kOptionHeadSize + 2;

inline constexpr size_t kPaddedBlock = 468;  // of a response (RFC 8467 §4.1)

class ResponseBuilder {
 public:
  // `limit`: bytes that the whole response may take; the buffer has room for as many. REQUIRES: header, question and
  // OPT fit, as they do into any UDP payload (512).
  ResponseBuilder(const Query& query, size_t limit)
      : query_(query), pos_(query.question_end), limit_(limit), reserved_(query.has_edns ? kOptSize : 0) {
    if (query.asked_options == 0) [[likely]]
      return;
    has_cookie_ = query.asksFor(kAsksCookie) && query.cookie.in_response && fits(kCookieOptionSize);
    if (has_cookie_) reserved_ += kCookieOptionSize;
    has_keepalive_ = query.asksFor(kTellsKeepalive) && fits(kKeepaliveOptionSize);
    if (has_keepalive_) reserved_ += kKeepaliveOptionSize;
    if (query.nsid == nullptr) return;
    nsid_size_ = kOptionHeadSize + query.nsid->size();
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
  // As truncate(), but these records of the answer section stay, if they fit. REQUIRES: nothing has been appended.
  void truncateTo(std::span<const uint8_t> records, uint16_t answers) {
    truncated_ = true;
    const size_t begin = pos_;
    append(records, answers, kept_answers_);
    kept_size_ = pos_ - begin;
  }
  // The client is told that there is more (TC); what has been appended stays.
  void cutHere() { cut_ = true; }
  // Bytes that are left for records, if NSID is left out.
  size_t room() const { return limit_ - pos_ - (reserved_ - nsid_size_); }

  // The offset of the next record: where a name in it can be pointed to. And the bytes written so far, for patching.
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
    if (cut_) flags |= kFlagTc;
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
  static constexpr size_t kEdeSize = kOptionHeadSize + 2;

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
    uint8_t* end = opt + kOptSize;
    if (has_cookie_) {
      end = addOption(opt, EdnsOption::kCookie, kCookieOptionSize - kOptionHeadSize);
      end = putBytes(putBytes(end, query_.cookie.client), query_.cookie.server);
    }
    if (has_keepalive_) end = put16(addOption(opt, EdnsOption::kTcpKeepalive, 2), query_.idle_timeout);
    if (ede_) end = putBytes(put16(addOption(opt, EdnsOption::kEde, 2 + ede_text_.size()), code(*ede_)), ede_text_);
    if (nsid_size_ > 0) end = putBytes(addOption(opt, EdnsOption::kNsid, query_.nsid->size()), *query_.nsid);
    pos_ = static_cast<size_t>(end - query_.message);
    if (query_.asksFor(kPads)) pad(opt);
  }

  void pad(uint8_t* opt) {
    if (limit_ - pos_ < kOptionHeadSize) return;
    const size_t least = pos_ + kOptionHeadSize;
    const size_t size = std::min((least + kPaddedBlock - 1) / kPaddedBlock * kPaddedBlock, limit_) - least;
    std::memset(addOption(opt, EdnsOption::kPadding, size), 0, size);
    pos_ = least + size;
  }

  const Query& query_;
  size_t pos_;
  const size_t limit_;
  size_t reserved_;       // for OPT with its options
  size_t nsid_size_ = 0;  // of that, for NSID
  bool has_cookie_ = false;
  bool has_keepalive_ = false;
  uint16_t answers_ = 0;
  uint16_t authorities_ = 0;
  uint16_t additionals_ = 0;
  bool truncated_ = false;
  bool cut_ = false;
  size_t kept_size_ = 0;  // when truncated
  uint16_t kept_answers_ = 0;
  std::optional<EdeCode> ede_;
  std::string_view ede_text_;
};

// A response with nothing but its records, all of which are at hand: what almost every response is, in a few wide
// stores. The same bytes as with a ResponseBuilder. Returns the size; 0 if it does not fit, or there is more to say.
// `counts`: as the header has them, all four, but without OPT; `flags`: as for finish(), and the rcode.
[[gnu::always_inline]] inline size_t writeFastResponse(const Query& query, std::span<const uint8_t> records,
                                                       uint64_t counts, size_t limit, uint16_t flags) {
  const size_t end = size_t{query.question_end} + records.size() + (query.has_edns ? kOptSize : 0);
  if (end > limit || query.asked_options != 0) return 0;
  uint8_t* message = query.message;
  store16(message + 2, kFlagQr | flags | (query.flags & (kOpcodeMask | kFlagRd | kFlagCd)));
  store64(message + 4, counts + (query.has_edns ? 1 : 0));
  copyRecords(records, message + query.question_end);
  if (query.has_edns) storeOpt(message + end - kOptSize, 0, query.dnssec_ok);
  return end;
}

// As above, with records of the answer section only.
[[gnu::always_inline]] inline size_t writeFastAnswer(const Query& query, std::span<const uint8_t> records,
                                                     uint16_t count, size_t limit, uint16_t flags) {
  return writeFastResponse(query, records, uint64_t{1} << 48 | uint64_t{count} << 32, limit, flags);
}

// NXDOMAIN becomes NODATA: the SOA stays. `response`: a whole message.
inline void denyDataOnly(uint8_t* response) {
  if ((response[3] & kRcodeMask) == code(Rcode::kNxDomain)) response[3] &= static_cast<uint8_t>(~kRcodeMask);
}

// The response to a query that parseQuery() refused with `query.error`. Returns its size; 0 where none can be made.
size_t writeErrorResponse(const Query& query, size_t limit);

}  // namespace idetcd::dns
