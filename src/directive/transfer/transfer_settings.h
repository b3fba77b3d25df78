// A line `transfer` of a Corefile.
#pragma once

#include "base/ip_address.h"
#include "dns/name.h"

namespace idetcd::directive {

struct TransferSettings {
  std::vector<dns::Name> zones{};          // of which, or within which; the server block's where none are named
  bool to_all = false;                     // `to *`
  std::vector<IpNetwork> clients{};        // who may have the zones
  std::vector<SocketAddress> notified{};   // of these, those to which NOTIFY goes
  std::string key{};                       // with which NOTIFY is signed; empty: with none
};

// That of the longest zone in which `name` (folded) is; null: there is none.
const TransferSettings* settingsOf(const std::vector<TransferSettings>& all, std::span<const uint8_t> name);

}  // namespace idetcd::directive
