// The numbers that IANA assigns for the DNS, and their mnemonics: one table each for types, classes, rcodes and
// opcodes. Any thread.
#pragma once

#include "base/std.h"

namespace idetcd::dns {

enum class Opcode : uint8_t { kQuery = 0, kNotify = 4 };

// The low four bits go into the header, the rest into OPT (RFC 6891 §6.1.3).
enum class Rcode : uint16_t {
  kNoError = 0,
  kFormErr = 1,
  kServFail = 2,
  kNxDomain = 3,
  kNotImp = 4,
  kRefused = 5,
  kYxDomain = 6,
  kNotAuth = 9,
  kBadVers = 16,
  kBadKey = 17,
  kBadCookie = 23,
};

// The types that the code names.
enum class RrType : uint16_t {
  kA = 1,
  kNs = 2,
  kMd = 3,
  kMf = 4,
  kCname = 5,
  kSoa = 6,
  kMb = 7,
  kMg = 8,
  kMr = 9,
  kPtr = 12,
  kHinfo = 13,
  kMinfo = 14,
  kMx = 15,
  kTxt = 16,
  kRp = 17,
  kAfsdb = 18,
  kRt = 21,
  kPx = 26,
  kAaaa = 28,
  kSrv = 33,
  kNaptr = 35,
  kKx = 36,
  kDname = 39,
  kOpt = 41,
  kDs = 43,
  kRrsig = 46,
  kNsec = 47,
  kNsec3 = 50,
  kSvcb = 64,
  kHttps = 65,
  kTkey = 249,
  kTsig = 250,
  kIxfr = 251,
  kAxfr = 252,
  kMailB = 253,
  kMailA = 254,
  kAny = 255,
};

enum class RrClass : uint16_t { kIn = 1, kCh = 3, kNone = 254, kAny = 255 };

// Extended DNS Error codes (RFC 8914 §4).
enum class EdeCode : uint16_t {
  kStaleAnswer = 3,
  kNotReady = 14,
  kBlocked = 15,
  kFiltered = 17,
  kStaleNxdomainAnswer = 19,
  kNotAuthoritative = 20,
  kNoReachableAuthority = 22,
  kNetworkError = 23,
  kSynthesized = 29,
};

enum class EdnsOption : uint16_t { kNsid = 3, kCookie = 10, kTcpKeepalive = 11, kPadding = 12, kEde = 15 };

template <typename E>
constexpr uint16_t code(E value) {
  return static_cast<uint16_t>(value);
}

constexpr bool isType(uint16_t number, RrType type) { return number == code(type); }

struct Mnemonic {
  uint16_t number;
  std::string_view text;
};

// Numbers and text. Without a mnemonic: TYPE65280, CLASS42 (RFC 3597 §5), RCODE3841, OPCODE7.
class Mnemonics {
 public:
  // `table` in the order of the numbers, in upper case; of several for one number the first is the one that is printed.
  constexpr Mnemonics(std::span<const Mnemonic> table, std::string_view prefix, uint16_t largest)
      : table_(table), prefix_(prefix), largest_(largest) {}

  std::string toString(uint16_t number) const;
  // In any case, the numbered form of any number too. Nothing: neither, or a number that is too large.
  std::optional<uint16_t> parse(std::string_view text) const;

 private:
  std::span<const Mnemonic> table_;
  std::string_view prefix_;
  uint16_t largest_;
};

extern const Mnemonics kTypeNames;
extern const Mnemonics kClassNames;
extern const Mnemonics kRcodeNames;  // the twelve bits of EDNS
extern const Mnemonics kOpcodeNames;

}  // namespace idetcd::dns
