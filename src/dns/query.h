// Reading one query from untrusted bytes (RFC 1035 §4.1, RFC 6891, RFC 9619). No I/O, no allocation, work bounded by
// the size of the message. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/hash.h"
#include "dns/name.h"
#include "dns/wire.h"

namespace idetcd::dns {

// Bytes that must be readable (not necessarily initialised) behind a message, so that names are folded sixteen octets
// at a time.
inline constexpr size_t kReadSlack = 16;

enum class ParseOutcome : uint8_t {
  kQuery,  // every field below is set
  kError,  // answer with `error`; the question is set if question_end > kHeaderSize, EDNS if has_edns
  kDrop,   // not a query: answering would loop or reflect
};

struct Query {
  uint8_t* message = nullptr;
  uint16_t size = 0;
  uint16_t question_end = kHeaderSize;  // offset behind the question; the header's size if there is none to echo
  uint16_t flags = 0;
  uint16_t qtype = 0;
  uint16_t qclass = 0;
  uint16_t qname_size = 0;
  Rcode error = Rcode::kNoError;
  bool has_edns = false;
  bool dnssec_ok = false;
  bool wants_nsid = false;                // RFC 5001
  uint16_t udp_payload = kMinUdpPayload;  // what the client accepts: at least 512 (RFC 6891 §6.2.3)
  uint16_t tsig_offset = 0;               // of a TSIG record (error kNotAuth), else 0
  // What the response's NSID option says; null: none. Set by who answers, and borrowed from him.
  const std::string* nsid = nullptr;
  uint64_t hash = 0;  // of the folded qname
  // The qname, folded to lower case. What is behind qname_size is unspecified.
  alignas(16) uint8_t qname[kMaxNameLength + 1 + kReadSlack];

  Opcode opcode() const { return static_cast<Opcode>((flags & kOpcodeMask) >> 11); }
  std::span<const uint8_t> name() const { return {qname, qname_size}; }
};

// Fills `query` from message[0, size). REQUIRES: kReadSlack more bytes are readable; size <= 65535.
ParseOutcome parseQuery(uint8_t* message, size_t size, HashSeed seed, Query& query);

// Copies [from, from+size) to `to` with ASCII upper case folded, sixteen octets at a time. May read and write up to
// kReadSlack - 1 octets more.
inline void foldCase(const uint8_t* from, size_t size, uint8_t* to) {
  using Octets = uint8_t __attribute__((vector_size(16)));  // one register on every 64-bit machine
  for (size_t i = 0; i < size; i += sizeof(Octets)) {
    Octets octets;
    std::memcpy(&octets, from + i, sizeof(octets));
    const Octets above_a = octets - 'A';  // wraps below 'A'
    octets |= (above_a <= 'Z' - 'A') & 0x20;
    std::memcpy(to + i, &octets, sizeof(octets));
  }
}

}  // namespace idetcd::dns
