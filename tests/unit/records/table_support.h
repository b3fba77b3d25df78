// For tests of the record table: names, entries and look-ups in a line each.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "base/hash.h"
#include "dns/name.h"
#include "records/entry.h"
#include "records/record_table.h"

namespace idetcd::records::test {

// By how much less a test does under a sanitizer, which makes each step as much slower.
#ifdef IDETCD_SANITIZED
inline constexpr size_t kSlowdown = 8;
#else
inline constexpr size_t kSlowdown = 1;
#endif

inline dns::Name name(std::string_view text) {
  const Result<dns::Name> parsed = dns::Name::parse(text);
  EXPECT_TRUE(parsed.has_value()) << text;
  return parsed.value_or(dns::Name());
}
inline dns::Name numbered(size_t number) { return name("worker" + std::to_string(number) + ".tf.local."); }

// REQUIRES: inside a ReadSection, or no writer.
inline const Entry* find(const RecordTable& table, const dns::Name& owner) {
  return table.find(hashBytes(owner.data(), owner.size(), table.seed()), owner.wire());
}

inline std::string text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline size_t rrsetCount(const Entry& entry) {
  size_t count = 0;
  entry.visitRrsets([&count](const Entry::Rrset&) {
    ++count;
    return false;
  });
  return count;
}

// The RDATA of the one record of an RRset; nothing if there is none.
inline std::optional<std::string> rdata(const Entry& entry, dns::RrType type) {
  const Entry::Rrset rrset = entry.find(dns::code(type));
  if (rrset.count == 0) return std::nullopt;
  EXPECT_EQ(rrset.count, 1);
  EXPECT_GE(rrset.wire.size(), 12u);
  return text(rrset.wire.subspan(12));
}

}  // namespace idetcd::records::test
