// The messages that go to an upstream, and what must be known of an answer before it is read. No I/O; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "dns/name.h"
#include "dns/query.h"
#include "dns/wire.h"

namespace idetcd::resolve {

// A query of our own making: header, question, OPT.
class ForwardMessage {
 public:
  // The question as the client wrote it, its RD and CD, and its DO in an OPT that is ours. AD is always set: whether an
  // answer was validated is asked for all who will get it from the cache, and told to those who want to know
  // (RFC 6840 §5.7).
  void assign(const dns::Query& query);
  // `domain` NS, as a health check asks it.
  void assignProbe(const dns::Name& domain, bool recursion_desired);

  void setId(uint16_t id) { dns::store16(octets_.data(), id); }
  uint16_t id() const { return dns::load16(octets_.data()); }
  // What is sent. A padded message has a multiple of 128 bytes (RFC 8467 §4.1), so that its length says little of the
  // name that is asked for; only an encrypted connection gains by that.
  enum class Form : uint8_t { kPlain, kEdns, kPadded };
  std::span<const uint8_t> octets(Form form);

  uint8_t* data() { return octets_.data(); }
  uint16_t questionEnd() const { return question_end_; }

 private:
  static constexpr size_t kQuestionTail = 4;
  void writeOpt(bool dnssec_ok);

  static constexpr size_t kBlock = 128;
  static constexpr size_t kOptionHead = 4;
  static constexpr size_t kMaxPlain = dns::kHeaderSize + dns::kMaxNameLength + kQuestionTail + dns::kOptSize;
  static constexpr size_t kMaxSize = (kMaxPlain + kOptionHead + kBlock - 1) / kBlock * kBlock;

  std::array<uint8_t, kMaxSize> octets_;
  uint16_t question_end_ = dns::kHeaderSize;
};

// Whether `message` is a server's way of saying that it does not know EDNS (RFC 6891 §7): FORMERR or NOTIMP without
// OPT, or BADVERS though version 0 was asked for. `query`: what was asked with `id`.
bool refusesEdns(std::span<const uint8_t> message, uint16_t id, const dns::Query& query);

}  // namespace idetcd::resolve
