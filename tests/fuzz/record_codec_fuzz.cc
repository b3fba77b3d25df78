// Keys and values in etcd, which anyone who may write there chooses: the first line is a key, the rest a value.
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/check.h"
#include "naming/record_codec.h"

namespace {

using namespace idetcd;

void checkKey(std::string_view key) {
  const Result<dns::Name> name = naming::decodeKey(key);
  if (!name) {
    FUZZ_CHECK(!name.error().message.empty());
    return;
  }
  FUZZ_CHECK(!name->isRoot());
  FUZZ_CHECK(name->toString() == key);  // so that no two keys are one name
}

void checkValue(std::string_view value) {
  const Result<naming::NodeRecord> record = naming::decodeRecord(value);
  if (!record) {
    FUZZ_CHECK(!record.error().message.empty());
    return;
  }
  FUZZ_CHECK(value.size() <= naming::kMaxValueBytes);
  FUZZ_CHECK(!record->ipv4 || record->ipv4->isV4());
  FUZZ_CHECK(!record->ipv6 || record->ipv6->isV6());
  FUZZ_CHECK(record->token >= 0 && record->token <= naming::kMaxToken);
  FUZZ_CHECK(record->slot >= 0 && record->slot <= naming::kMaxToken);
  const std::string encoded = naming::encodeRecord(*record);
  if (encoded.size() > naming::kMaxValueBytes) return;  // escapes may take more room than what they came from
  const Result<naming::NodeRecord> again = naming::decodeRecord(encoded);
  FUZZ_CHECK(again.has_value() && *again == *record);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t line = std::min(text.find('\n'), size);
  checkKey(text.substr(0, line));
  checkValue(text.substr(std::min(line + 1, size)));
  checkValue(text);
  return 0;
}
