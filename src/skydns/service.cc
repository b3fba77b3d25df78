#include "skydns/service.h"

#include "base/json.h"
#include "base/text.h"

namespace idetcd::skydns {

namespace {

using nlohmann::json;

constexpr size_t kMaxValue = 60'000;  // bytes; a longer text fits into no message

// A whole number; fails for anything else, and for one beyond the range of the type.
Result<int64_t> wholeNumber(const std::string& field, const json& value, int64_t least) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (!value.is_number_integer()) return fail(fmt::format("\"{}\" is no whole number", field));
  const bool is_large = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{kMost};
  if (is_large || value.get<int64_t>() < least || value.get<int64_t>() > kMost)
    return fail(fmt::format("\"{}\" is out of range", field));
  return value.get<int64_t>();
}

template <typename T>
Result<void> readNumber(const std::string& field, const json& value, int64_t least, T& to) {
  const auto number = wholeNumber(field, value, least);
  if (!number) return tl::unexpected(number.error());
  constexpr int64_t kMost = std::min<int64_t>(std::numeric_limits<T>::max(), std::numeric_limits<int32_t>::max());
  to = static_cast<T>(std::min(*number, kMost));
  return {};
}

// 0 counts as not said.
Result<void> readUnlessZero(const std::string& field, const json& value, uint16_t& to) {
  uint16_t number = 0;
  if (auto read = readNumber(field, value, 0, number); !read) return read;
  if (number != 0) to = number;
  return {};
}

Result<void> readHost(const std::string& host, Service& service) {
  if (host.empty()) return {};
  if (const auto address = IpAddress::parse(host)) {
    service.address = address->unmapped();
    return {};
  }
  const auto name = dns::Name::parse(host);
  if (!name) return fail(fmt::format("the host is no name: {}", name.error().message));
  service.target.assign(reinterpret_cast<const char*>(name->data()), name->size());
  return {};
}

Result<void> readField(const std::string& field, const json& value, Service& service) {
  if (value.is_null()) return {};
  if (field == "port") return readNumber(field, value, std::numeric_limits<int32_t>::min(), service.port);
  if (field == "priority") return readUnlessZero(field, value, service.priority);
  if (field == "weight") return readUnlessZero(field, value, service.weight);
  if (field == "ttl") return readNumber(field, value, 0, service.ttl_seconds);
  if (field == "targetstrip") return readNumber(field, value, 0, service.target_strip);
  if (field == "mail") {
    if (!value.is_boolean()) return fail("\"mail\" is neither true nor false");
    service.mail = value.get<bool>();
    return {};
  }
  if (field != "host" && field != "text" && field != "group") return {};
  if (!value.is_string()) return fail(fmt::format("\"{}\" is no text", field));
  const auto& text = value.get_ref<const std::string&>();
  if (field == "host") return readHost(text, service);
  (field == "text" ? service.text : service.group) = text;
  return {};
}

}  // namespace

uint32_t Service::ttl() const {
  const uint32_t most = lease ? lease->seconds.load(std::memory_order_relaxed) : 0;
  if (ttl_seconds == 0) return most == 0 ? kDefaultTtl : most;
  return most == 0 ? ttl_seconds : std::min(most, ttl_seconds);
}

Result<Service> parseService(std::string key, std::string_view value) {
  if (!nameOf(key)) return fail("the key is no name");
  if (value.size() > kMaxValue) return fail(fmt::format("the value has more than {} bytes", kMaxValue));
  const json fields = parseJson(value);
  if (!fields.is_object()) return fail("the value is no JSON object");
  Service service{.key = std::move(key)};
  // Go's reader, which CoreDNS has, takes the names of fields in any case.
  for (const auto& [field, content] : fields.items()) {
    if (auto read = readField(lowerCase(field), content, service); !read) return tl::unexpected(read.error());
  }
  return service;
}

std::optional<std::string> keyOf(std::span<const uint8_t> name) {
  std::string key;
  key.reserve(name.size());
  for (; name.front() != 0; name = dns::parentOf(name)) {
    const std::string_view label(reinterpret_cast<const char*>(name.data() + 1), name.front());
    if (label.find('/') != label.npos) return std::nullopt;
    key.insert(0, label).insert(key.begin(), '/');
  }
  return key;
}

std::optional<dns::Name> nameOf(std::string_view key) {
  if (key.ends_with('/')) key.remove_suffix(1);
  std::vector<uint8_t> wire;
  for (size_t end = key.size(); end > 0;) {
    const size_t slash = key.rfind('/', end - 1);
    if (slash == key.npos) return std::nullopt;
    const std::string_view label = key.substr(slash + 1, end - slash - 1);
    if (label.empty() || label.size() > dns::kMaxLabelLength) return std::nullopt;
    wire.push_back(static_cast<uint8_t>(label.size()));
    wire.insert(wire.end(), label.begin(), label.end());
    end = slash;
  }
  wire.push_back(0);
  if (wire.size() > dns::kMaxNameLength) return std::nullopt;
  return dns::Name::fromWire(wire);
}

}  // namespace idetcd::skydns
