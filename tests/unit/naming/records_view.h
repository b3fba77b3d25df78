// What a reader of the record store sees, as text, for tests. One thread.
#pragma once

#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/ip_address.h"
#include "dns/name.h"
#include "dns/wire.h"
#include "records/epoch.h"
#include "records/record_store.h"

namespace idetcd::naming {

class RecordsView {
 public:
  RecordsView(records::EpochDomain& epochs, const records::RecordStore& store) : reader_(epochs), store_(store) {}

  // "192.0.2.1 fd00::1", "no data", or "none".
  std::string at(std::string_view text) {
    const dns::Name name = dns::Name::parse(text).value();
    const records::ReadSection section(reader_);
    const records::RecordTable& table = store_.table();
    const records::Entry* entry = table.find(hashBytes(name.data(), name.size(), table.seed()), name.wire());
    if (entry == nullptr) return "none";
    std::string found;
    if (const auto a = entry->find(static_cast<uint16_t>(dns::RrType::kA)); a.count > 0) {
      std::array<uint8_t, 4> bytes;
      std::memcpy(bytes.data(), a.wire.data() + a.wire.size() - 4, 4);
      found += IpAddress::v4(bytes).toString();
    }
    if (const auto aaaa = entry->find(static_cast<uint16_t>(dns::RrType::kAaaa)); aaaa.count > 0) {
      std::array<uint8_t, 16> bytes;
      std::memcpy(bytes.data(), aaaa.wire.data() + aaaa.wire.size() - 16, 16);
      found += (found.empty() ? "" : " ") + IpAddress::v6(bytes).toString();
    }
    return found.empty() ? "no data" : found;
  }

 private:
  records::EpochDomain::Reader reader_;
  const records::RecordStore& store_;
};

}  // namespace idetcd::naming
