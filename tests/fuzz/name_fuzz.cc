// Names as text (a Corefile, a key in etcd) and as bytes (a packet): each form gives the other back.
#include <string>
#include <string_view>

#include "dns/name.h"
#include "fuzz/check.h"
#include "fuzz/whole_name.h"

namespace {

using namespace idetcd;
using fuzz::isWhole;

void checkName(const dns::Name& name) {
  FUZZ_CHECK(isWhole(name.wire()));
  for (const uint8_t byte : name.wire()) FUZZ_CHECK(byte < 'A' || byte > 'Z');
  const std::string text = name.toString();
  FUZZ_CHECK(text.back() == '.');
  for (const char c : text) FUZZ_CHECK(c > ' ' && c < 0x7f);
  const Result<dns::Name> again = dns::Name::parse(text);
  FUZZ_CHECK(again.has_value() && *again == name && again->toString() == text);
  if (!name.isRoot()) {
    const Result<dns::Name> without_dot = dns::Name::parse(std::string_view(text).substr(0, text.size() - 1));
    FUZZ_CHECK(without_dot.has_value() && *without_dot == name);
  }
  for (dns::Name zone = name; !zone.isRoot(); zone = zone.parent()) {
    FUZZ_CHECK(isWhole(zone.wire()));
    FUZZ_CHECK(name.isWithin(zone));
    FUZZ_CHECK(zone == name || !zone.isWithin(name));
  }
  FUZZ_CHECK(name.isWithin(dns::Name()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Result<dns::Name> parsed = dns::Name::parse({reinterpret_cast<const char*>(data), size});
  if (parsed) {
    checkName(*parsed);
  } else {
    FUZZ_CHECK(!parsed.error().message.empty());
  }
  if (isWhole({data, size})) checkName(dns::Name::fromWire({data, size}));
  return 0;
}
