#include "zones/service_parameters.h"

#include "base/ip_address.h"
#include "base/text.h"
#include "dns/types.h"
#include "zones/text_data.h"

namespace idetcd::zones {

namespace {

constexpr auto kServiceKeyTable = std::to_array<dns::Mnemonic>({{0, "MANDATORY"},
                                                                {1, "ALPN"},
                                                                {2, "NO-DEFAULT-ALPN"},
                                                                {3, "PORT"},
                                                                {4, "IPV4HINT"},
                                                                {5, "ECH"},
                                                                {6, "IPV6HINT"},
                                                                {7, "DOHPATH"},
                                                                {8, "OHTTP"}});
constinit const dns::Mnemonics kServiceKeys(kServiceKeyTable, "KEY", 65534);

enum ServiceKey : uint16_t { kMandatory = 0, kAlpn, kNoDefaultAlpn, kPort, kIpv4Hint, kEch, kIpv6Hint };

struct Parameter {
  uint16_t key;
  std::vector<uint8_t> value;
};

// Calls visit(item) for what stands between commas; false if it does, or there is nothing.
template <typename Visit>
bool visitList(std::string_view text, Visit visit) {
  if (text.empty()) return false;
  for (size_t pos = 0; pos <= text.size();) {
    const size_t comma = std::min(text.find(',', pos), text.size());
    if (comma == pos || !visit(text.substr(pos, comma - pos))) return false;
    pos = comma + 1;
  }
  return true;
}

void append16(std::vector<uint8_t>& to, uint16_t value) {
  to.push_back(static_cast<uint8_t>(value >> 8));
  to.push_back(static_cast<uint8_t>(value));
}

bool readMandatory(std::string_view text, std::vector<uint8_t>& value) {
  std::vector<uint16_t> keys;
  const bool good = visitList(text, [&](std::string_view item) {
    const auto key = kServiceKeys.parse(item);
    if (key) keys.push_back(*key);
    return key && *key != kMandatory;
  });
  std::ranges::sort(keys);
  for (const uint16_t key : keys) append16(value, key);
  return good && std::ranges::adjacent_find(keys) == keys.end();
}

// Two levels of escapes: those of the file, then `\,` and `\\` of the list (RFC 9460 §A.1).
bool readAlpn(std::string_view text, std::vector<uint8_t>& value) {
  std::vector<uint8_t> list;
  if (!unescape(text, list) || list.empty()) return false;
  size_t start = value.size();
  value.push_back(0);
  const auto close = [&] {
    const size_t size = value.size() - start - 1;
    value[start] = static_cast<uint8_t>(size);
    return size > 0 && size <= 255;
  };
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] == ',') {
      if (!close()) return false;
      start = value.size();
      value.push_back(0);
      continue;
    }
    if (list[i] == '\\' && ++i == list.size()) return false;
    value.push_back(list[i]);
  }
  return close();
}

bool readParameter(uint16_t key, std::string_view text, std::vector<uint8_t>& value) {
  switch (key) {
    case kMandatory:
      return readMandatory(text, value);
    case kAlpn:
      return readAlpn(text, value);
    case kNoDefaultAlpn:
      return text.empty();
    case kPort: {
      const auto port = parseNumber<uint16_t>(text);
      if (port) append16(value, *port);
      return port.has_value();
    }
    case kIpv4Hint:
    case kIpv6Hint:
      return visitList(text, [&](std::string_view item) {
        const auto address = IpAddress::parse(item);
        if (!address || address->isV4() != (key == kIpv4Hint)) return false;
        value.insert(value.end(), address->data(), address->data() + address->size());
        return true;
      });
    case kEch:
      return !text.empty() && decodeBase64(text, value);
    default:
      return unescape(text, value) && value.size() <= std::numeric_limits<uint16_t>::max();
  }
}

}  // namespace

Result<void> readServiceParameters(std::span<const Word> words, std::vector<uint8_t>& rdata) {
  std::vector<Parameter> all;
  for (const Word& word : words) {
    std::string_view text = word.text;
    const std::string_view key_text = text.substr(0, text.find('='));
    const auto key = kServiceKeys.parse(key_text);
    if (!key) return notA(key_text, "parameter of a service");
    text.remove_prefix(std::min(key_text.size() + 1, text.size()));
    if (text.size() >= 2 && text.front() == '"') text = text.substr(1, text.size() - 2);
    Parameter parameter{*key, {}};
    if (!readParameter(*key, text, parameter.value)) return fail(fmt::format("a bad value of '{}'", key_text));
    all.push_back(std::move(parameter));
  }
  std::ranges::sort(all, {}, &Parameter::key);
  const auto twice = std::ranges::adjacent_find(all, {}, &Parameter::key);
  if (twice != all.end()) return fail(fmt::format("'{}' is there twice", lowerCase(kServiceKeys.toString(twice->key))));
  for (const Parameter& parameter : all) {
    append16(rdata, parameter.key);
    append16(rdata, static_cast<uint16_t>(parameter.value.size()));
    rdata.insert(rdata.end(), parameter.value.begin(), parameter.value.end());
  }
  return {};
}

}  // namespace idetcd::zones
