// The messages that go to an upstream, and what must be known of an answer before it is read. No I/O; any thread.
#pragma once

#include "base/random.h"
#include "dns/name.h"
#include "dns/query.h"
#include "dns/record.h"
#include "dns/wire.h"

namespace idetcd::resolver {

// A query of our own making: header, question, OPT.
class ForwardMessage {
 public:
  // The question as the client wrote it, its RD and CD, and its DO in an OPT that is ours. AD is always set: whether an
  // answer was validated is asked for all clients that will get it from the cache, and passed on to those that want to
  // know (RFC 6840 §5.7).
  // `udp_payload`: of a response over UDP, at most.
  void assign(const dns::Query& query, size_t udp_payload = dns::kDefaultUdpPayload);
  // `domain` NS, as a health check asks it.
  void assignProbe(const dns::Name& domain, bool recursion_desired);

  // Draws the case of each letter of the name (draft-vixie-dnsext-dns0x20-00).
  void drawCase(SecureRandom& random);
  // Whether `message` has the name in that case. REQUIRES: it repeats the question, in some case.
  bool hasSameCase(std::span<const uint8_t> message) const;

  void setId(uint16_t id) { dns::store16(bytes_.data(), id); }
  uint16_t id() const { return dns::load16(bytes_.data()); }
  // The form in which it is sent. A padded message has a multiple of 128 bytes (RFC 8467 §4.1), so that its length says
  // little of the name that is asked for; only an encrypted connection gains by that.
  enum class Form : uint8_t { kPlain, kEdns, kPadded };
  // Options of all but kPlain.
  struct Extras {
    std::span<const uint8_t> cookie = {};  // the data of a COOKIE option, 40 bytes at most; of kEdns only
    bool keepalive = false;  // asks how long the connection may be idle (RFC 7828 §3.2.1: over streams only)
  };
  std::span<const uint8_t> bytes(Form form, const Extras& extras);
  std::span<const uint8_t> bytes(Form form) { return bytes(form, Extras{}); }

  uint8_t* data() { return bytes_.data(); }

 private:
  void writeOpt(bool dnssec_ok, size_t udp_payload);

  static constexpr size_t kBlock = 128;
  static constexpr size_t kMaxPlain = dns::kMaxQuestionSize + dns::kOptSize;
  static constexpr size_t kMaxSize = (kMaxPlain + 2 * dns::kOptionHeadSize + kBlock - 1) / kBlock * kBlock;
  static_assert(kMaxSize >= kMaxPlain + 2 * dns::kOptionHeadSize + 40);

  std::array<uint8_t, kMaxSize> bytes_;
  uint16_t question_end_ = dns::kHeaderSize;
};

// Whether `message` is a server's way of saying that it does not know EDNS (RFC 6891 §7): FORMERR or NOTIMP without
// OPT. `query`: what was asked with `id`.
bool refusesEdns(std::span<const uint8_t> message, uint16_t id, const dns::Query& query);

}  // namespace idetcd::resolver
