#include "zones/denial.h"

#include <gtest/gtest.h>

namespace idetcd::zones {
namespace {

std::vector<uint8_t> wire(std::string_view text) {
  const auto name = dns::Name::parse(text).value();
  return {name.wire().begin(), name.wire().end()};
}

TEST(Denial, CanonicalOrderAsInRfc4034) {
  const std::array<std::string_view, 10> order{"example.",         "a.example.", "yljkjljk.a.example.", "z.a.example.",
                                               "zabc.a.example.",  "z.example.", "\\001.z.example.",    "*.z.example.",
                                               "\\200.z.example.", "za.example."};
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t j = 0; j < order.size(); ++j)
      EXPECT_EQ(isBefore(wire(order[i]), wire(order[j])), i < j) << order[i] << " " << order[j];
  }
}

// RFC 5155, appendix A: 12 iterations, salt aabbccdd.
TEST(Denial, HashesAsInRfc5155) {
  const std::array<uint8_t, 4> salt{0xaa, 0xbb, 0xcc, 0xdd};
  for (const auto& [name, hash] : {std::pair("example.", "0p9mhaveqvm6t7vbl5lop2u3t2rp3tom"),
                                   std::pair("a.example.", "35mthgpgcu1qg68fab165klnsnk3dpvl"),
                                   std::pair("*.w.example.", "r53bq7cc2uvmubfu5ocmm6pers9tk9en"),
                                   std::pair("x.y.w.example.", "2vptu5timamqttgl4luu9kg21e0aor3s")}) {
    const std::string_view text = hash;
    const auto label = parseNsec3Label({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    ASSERT_TRUE(label);
    EXPECT_EQ(hashNsec3(wire(name), {12, salt}), *label) << name;
  }
  // Longer than a block.
  const std::vector<uint8_t> long_salt(200, 7);
  EXPECT_NE(hashNsec3(wire("example."), {0, long_salt}),
            hashNsec3(wire("example."), {0, std::span(long_salt).first(199)}));
}

TEST(Denial, LabelsThatAreNoHashes) {
  const auto parse = [](std::string_view text) {
    return parseNsec3Label({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  };
  EXPECT_FALSE(parse(""));
  EXPECT_FALSE(parse("0p9mhaveqvm6t7vbl5lop2u3t2rp3to"));
  EXPECT_FALSE(parse("0p9mhaveqvm6t7vbl5lop2u3t2rp3tow"));
  EXPECT_TRUE(parse("0P9MHAVEQVM6T7VBL5LOP2U3T2RP3TOM"));
}

}  // namespace
}  // namespace idetcd::zones
