// Names as text (a Corefile, a key in etcd) and as octets (a packet): each form gives the other back.
#include <string>
#include <string_view>

#include "dns/name.h"
#include "fuzz/check.h"

namespace {

using namespace idetcd;

// The octets of `wire` are one whole name.
bool isWhole(std::span<const uint8_t> wire) {
  size_t pos = 0;
  while (pos < wire.size() && wire[pos] != 0) {
    if (wire[pos] > dns::kMaxLabelLength) return false;
    pos += wire[pos] + 1u;
  }
  return pos + 1 == wire.size() && wire.size() <= dns::kMaxNameLength;
}

void checkName(const dns::Name& name) {
  FUZZ_CHECK(isWhole(name.wire()));
  for (const uint8_t octet : name.wire()) FUZZ_CHECK(octet < 'A' || octet > 'Z');
  const std::string text = name.toString();
  FUZZ_CHECK(text.back() == '.');
  for (const char c : text) FUZZ_CHECK(c > ' ' && c < 0x7f);
  const Result<dns::Name> again = dns::Name::parse(text);
  FUZZ_CHECK(again.has_value() && *again == name && again->toString() == text);
  if (!name.isRoot()) {
    const Result<dns::Name> without_dot = dns::Name::parse(std::string_view(text).substr(0, text.size() - 1));
    FUZZ_CHECK(without_dot.has_value() && *without_dot == name);
  }
  size_t labels = 0;
  for (dns::Name zone = name; !zone.isRoot(); zone = zone.parent(), ++labels) {
    FUZZ_CHECK(isWhole(zone.wire()));
    FUZZ_CHECK(name.isWithin(zone));
    FUZZ_CHECK(zone == name || !zone.isWithin(name));
  }
  FUZZ_CHECK(labels == name.labelCount());
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
