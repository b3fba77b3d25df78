// Presentation of types, classes and rcodes, for log lines (RFC 3597 for what has no mnemonic). Any thread.
#pragma once

#include <cstdint>
#include <string>

namespace idetcd::dns {

std::string typeToString(uint16_t type);    // "A", "TYPE65280"
std::string classToString(uint16_t klass);  // "IN", "CLASS42"
std::string rcodeToString(uint16_t rcode);  // "NOERROR", "RCODE4095"

}  // namespace idetcd::dns
