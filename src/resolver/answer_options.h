// What the OPT record of an upstream's answer says to whoever is next to it (RFC 6891 §6.2.6: options are hop by hop). No
// I/O; any thread.
#pragma once

#include "dns/types.h"

namespace idetcd::resolver {

// Nothing, of what cannot be read.
struct AnswerOptions {
  dns::Rcode rcode = dns::Rcode::kNoError;         // all twelve bits
  std::optional<std::span<const uint8_t>> cookie = {};  // the first one
  std::optional<uint16_t> idle_timeout = {};       // edns-tcp-keepalive (RFC 7828 §3.1), in units of 100 ms
};
AnswerOptions optionsOf(std::span<const uint8_t> message);

}  // namespace idetcd::resolver
