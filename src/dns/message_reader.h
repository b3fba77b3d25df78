// Reading any message (RFC 1035 §4.1): header, question, the records of all sections in order, the options of EDNS.
// Checks all sizes; the caller interprets the records. Names are read with expandName(). No I/O, no
// allocation, work bounded by the size of the message. Any thread.
#pragma once

#include "dns/query.h"
#include "dns/wire.h"

namespace idetcd::dns {

// Names in messages from elsewhere, where compression pointers occur (RFC 1035 §4.1.4). No I/O, no allocation; any
// thread.

// How much work the names of one message may make: a label, a jump, or a comparison of two names is a step or a few.
// Without it, a message of 64 KB can take a hundred milliseconds. One thread.
class NameWork {
 public:
  explicit NameWork(size_t steps) : left_(steps) {}
  // False from the first time on that there are not as many left.
  bool spend(size_t steps) {
    left_ = steps <= left_ ? left_ - steps : 0;
    return left_ > 0;
  }
  bool isSpent() const { return left_ == 0; }

 private:
  size_t left_;
};

// An expanded name, in the case in which it came.
struct ExpandedName {
  std::array<uint8_t, kMaxNameLength + 1 + kReadSlack> wire;  // so that it can be folded sixteen bytes at a time
  uint8_t size = 0;
  std::span<const uint8_t> span() const { return {wire.data(), size}; }
};

inline constexpr size_t kMaxJumps = 127;  // of one name: as many as it can have labels

// Expands the name at `pos`. Returns the offset behind it in the message, or 0 if it is none: cut short, longer than
// 255 bytes, an unknown label type, more than kMaxJumps pointers, or a pointer that does not lead backwards to behind
// the header (every pointer must lead to before the place where the name, or the last jump, began); or if `work` is
// spent.
size_t expandName(std::span<const uint8_t> message, size_t pos, ExpandedName& name, NameWork& work);
size_t expandName(std::span<const uint8_t> message, size_t pos, ExpandedName& name);

// Where the pointer leads that stands at `pos` in place of a name; 0: there is none. What it leads to is not looked at.
// Records in a row whose owners lead to one place have one owner.
size_t pointerTarget(std::span<const uint8_t> message, size_t pos);

// Names in wire form, without pointers. Byte equality but for ASCII case.
bool sameName(std::span<const uint8_t> a, std::span<const uint8_t> b);
bool sameName(std::span<const uint8_t> a, std::span<const uint8_t> b, NameWork& work);
// Whether `name` is `zone` or a name below it.
bool isWithin(std::span<const uint8_t> name, std::span<const uint8_t> zone, NameWork& work);

// The first kHeaderSize bytes of a message, borrowed.
class HeaderView {
 public:
  explicit HeaderView(const uint8_t* message) : message_(message) {}

  uint16_t id() const { return load16(message_); }
  uint16_t flags() const { return load16(message_ + 2); }
  bool isResponse() const { return (flags() & kFlagQr) != 0; }
  bool isTruncated() const { return (flags() & kFlagTc) != 0; }
  Opcode opcode() const { return static_cast<Opcode>((flags() & kOpcodeMask) >> 11); }
  Rcode rcode() const { return static_cast<Rcode>(flags() & kRcodeMask); }  // its low four bits
  uint16_t questions() const { return load16(message_ + 4); }
  uint16_t answers() const { return load16(message_ + 6); }
  uint16_t authorities() const { return load16(message_ + 8); }
  uint16_t additionals() const { return load16(message_ + 10); }

 private:
  const uint8_t* message_;
};

enum class Section : uint8_t { kAnswer, kAuthority, kAdditional };

// A record as it stands. Offsets are of the message.
struct RecordView {
  Section section = Section::kAnswer;
  bool is_last = false;  // of the message
  uint16_t type = 0;
  uint16_t klass = 0;
  uint32_t ttl = 0;
  uint16_t rdata_size = 0;
  size_t owner = 0;  // a name that skipName() takes
  size_t rdata = 0;
};

enum class ReadStep : uint8_t { kRead, kEnd, kMalformed };

// The records, one after the other. A message is whole if next() comes to kEnd; what is behind that is not looked at.
class MessageReader {
 public:
  // `pos`: behind the question. REQUIRES: kHeaderSize <= pos <= message.size(), which outlives this.
  MessageReader(std::span<const uint8_t> message, size_t pos) : message_(message), pos_(pos) {
    assert(pos >= kHeaderSize && pos <= message.size());
    const HeaderView header(message.data());
    before_authority_ = header.answers();
    before_additional_ = before_authority_ + header.authorities();
    count_ = before_additional_ + header.additionals();
  }

  // `record` is unspecified unless kRead is returned. Not called again after that.
  [[gnu::always_inline]] inline ReadStep next(RecordView& record) {
    if (index_ == count_) return ReadStep::kEnd;
    const uint8_t* message = message_.data();
    const size_t size = message_.size();
    const size_t fixed = skipName(message, size, pos_);
    if (fixed == 0 || size - fixed < kFixedSize) return ReadStep::kMalformed;
    record.owner = pos_;
    record.type = load16(message + fixed);
    record.klass = load16(message + fixed + 2);
    record.ttl = load32(message + fixed + 4);
    record.rdata_size = load16(message + fixed + 8);
    record.rdata = fixed + kFixedSize;
    if (size - record.rdata < record.rdata_size) return ReadStep::kMalformed;
    record.section = index_ < before_authority_    ? Section::kAnswer
                     : index_ < before_additional_ ? Section::kAuthority
                                                   : Section::kAdditional;
    pos_ = record.rdata + record.rdata_size;
    record.is_last = ++index_ == count_;
    return ReadStep::kRead;
  }

  // Behind the record that was read last.
  size_t position() const { return pos_; }

 private:
  static constexpr size_t kFixedSize = 10;  // type, class, TTL, RDLENGTH

  std::span<const uint8_t> message_;
  size_t pos_;
  size_t index_ = 0;
  size_t before_authority_;
  size_t before_additional_;
  size_t count_;
};

struct OptionView {
  uint16_t code = 0;
  std::span<const uint8_t> data;
};

// The options in an OPT record's RDATA (RFC 6891 §6.1.2).
class OptionReader {
 public:
  explicit OptionReader(std::span<const uint8_t> rdata) : rdata_(rdata) {}

  // `option` is unspecified unless kRead is returned. Not called again after that.
  ReadStep next(OptionView& option) {
    if (rdata_.empty()) return ReadStep::kEnd;
    if (rdata_.size() < kHeadSize) return ReadStep::kMalformed;
    const size_t size = load16(&rdata_[2]);
    if (rdata_.size() - kHeadSize < size) return ReadStep::kMalformed;
    option = {.code = load16(rdata_.data()), .data = rdata_.subspan(kHeadSize, size)};
    rdata_ = rdata_.subspan(kHeadSize + size);
    return ReadStep::kRead;
  }

 private:
  static constexpr size_t kHeadSize = 4;
  std::span<const uint8_t> rdata_;
};

// The offset behind the question if the message has one, and it is the query's but for case; else 0. REQUIRES: a
// header.
size_t matchQuestion(std::span<const uint8_t> message, const Query& query);

}  // namespace idetcd::dns
