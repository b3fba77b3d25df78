#include "records/member_data.h"

#include "base/text.h"
#include "dns/record.h"

namespace idetcd::records {

namespace {

constexpr size_t kUuidTextSize = 36;

bool isLabel(std::string_view name, size_t max_size) {
  const auto is_allowed = [](char c) { return (c >= 'a' && c <= 'z') || isDigit(c) || c == '-'; };
  return !name.empty() && name.size() <= max_size && std::ranges::all_of(name, is_allowed) && name.front() != '-' &&
         name.back() != '-';
}

bool isServiceName(std::string_view name) { return isLabel(name, kMaxServiceName); }

// Nothing: it is no UUID in its usual form.
std::optional<std::array<uint8_t, 16>> uuidOf(std::string_view text) {
  if (text.size() != kUuidTextSize) return std::nullopt;
  std::array<uint8_t, 16> uuid{};
  size_t at = 0;
  for (uint8_t& byte : uuid) {
    if (at == 8 || at == 13 || at == 18 || at == 23) {
      if (text[at++] != '-') return std::nullopt;
    }
    const auto number = parseNumber<uint8_t>(text.substr(at, 2), 16);
    if (!number) return std::nullopt;
    byte = *number;
    at += 2;
  }
  return uuid;
}

uint8_t* putText(uint8_t* to, std::string_view text) {
  *to++ = static_cast<uint8_t>(text.size());
  return dns::putBytes(to, text);
}

}  // namespace

Result<Service> parseService(std::span<const std::string> words) {
  if (words.size() != 3 && words.size() != 5) return fail("a service is NAME tcp|udp PORT [weight W]");
  Service service{.name = lowerCase(words[0])};
  if (!isServiceName(service.name))
    return fail(
        fmt::format("'{}' is no name of a service: 1 to {} letters, digits and '-'", words[0], kMaxServiceName));
  if (words[1] != "tcp" && words[1] != "udp") return fail(fmt::format("'{}' is neither tcp nor udp", words[1]));
  service.protocol = words[1] == "tcp" ? Service::Protocol::kTcp : Service::Protocol::kUdp;
  const auto port = parseNumber<uint16_t>(words[2]);
  if (!port || *port == 0) return fail(fmt::format("'{}' is no port from 1 to 65535", words[2]));
  service.port = *port;
  if (words.size() == 3) return service;
  const auto weight = parseNumber<uint16_t>(words[4]);
  if (words[3] != "weight" || !weight)
    return fail(fmt::format("'{} {}' is no weight: write weight W, from 0 to 65535", words[3], words[4]));
  service.weight = *weight;
  return service;
}

std::string toString(const Service& service) {
  return fmt::format("{} {} {} weight {}", service.name, service.protocol == Service::Protocol::kTcp ? "tcp" : "udp",
                     service.port, service.weight);
}

bool isNetworkName(std::string_view name) { return isLabel(name, kMaxNetworkName); }

std::optional<dns::Name> nameInNetwork(const dns::Name& member, const dns::Name& zone, std::string_view network) {
  if (!member.isWithin(zone) || member.size() + 1 + network.size() > dns::kMaxNameLength) return std::nullopt;
  std::array<uint8_t, dns::kMaxNameLength> wire;
  uint8_t* end = dns::putBytes(wire.data(), member.wire().first(member.size() - zone.size()));
  end = dns::putBytes(putText(end, network), zone.wire());
  return dns::Name::fromWire({wire.data(), end});
}

std::optional<Network> parseNetwork(std::span<const std::string> words) {
  if (words.empty() || words.size() > 3 || !isNetworkName(words[0])) return std::nullopt;
  Network network{.name = words[0], .addresses = {}};
  for (const std::string& word : words.subspan(1)) {
    const auto ip = IpAddress::parse(word);
    if (!ip) return std::nullopt;
    auto& slot = ip->isV4() ? network.addresses.ipv4 : network.addresses.ipv6;
    if (slot) return std::nullopt;
    slot = ip;
  }
  return network;
}

std::string toString(const Network& network) {
  std::string text = network.name;
  for (const IpAddress& ip : network.addresses.list()) text += " " + ip.toString();
  return text;
}

std::vector<uint8_t> memberData(std::string_view uuid, int64_t token, std::span<const Service> services,
                                std::span<const Network> networks) {
  assert(services.size() <= kMaxServices && networks.size() <= kMaxNetworks);
  const auto id = uuidOf(uuid);
  if (!id) return {};
  std::vector<uint8_t> data(id->begin(), id->end());
  const auto append = [&data](uint64_t number, size_t size) {
    while (size-- > 0) data.push_back(static_cast<uint8_t>(number >> (8 * size)));
  };
  append(static_cast<uint64_t>(token), 8);
  for (const Service& service : services) {
    data.push_back(static_cast<uint8_t>(service.protocol));
    append(service.port, 2);
    append(service.weight, 2);
    append(service.name.size(), 1);
    data.insert(data.end(), service.name.begin(), service.name.end());
  }
  for (const Network& network : networks) {
    const HostAddresses& addresses = network.addresses;
    data.push_back(MemberView::kIsNetwork);
    data.push_back(static_cast<uint8_t>((addresses.ipv4 ? MemberView::kHasIpv4 : 0) |
                                        (addresses.ipv6 ? MemberView::kHasIpv6 : 0)));
    append(network.name.size(), 1);
    data.insert(data.end(), network.name.begin(), network.name.end());
    for (const IpAddress& ip : addresses.list()) data.insert(data.end(), ip.data(), ip.data() + ip.size());
  }
  return data;
}

bool MemberView::isValid() const {
  if (data_.size() < kHeadSize) return false;
  size_t count = 0;
  size_t size = kHeadSize;
  bool is_valid = true;
  visitServices([&](const ServiceView& service) {
    ++count;
    size += kServiceSize + service.name.size();
    const bool is_known = service.protocol == static_cast<uint8_t>(Service::Protocol::kTcp) ||
                          service.protocol == static_cast<uint8_t>(Service::Protocol::kUdp);
    is_valid = is_valid && is_known && isServiceName(service.name);
  });
  size_t networks = 0;
  visitNetworks([&](const NetworkView& network) {
    ++networks;
    size += kNetworkSize + network.name.size();
    for (const IpAddress& ip : network.addresses.list()) size += ip.size();
    is_valid = is_valid && isNetworkName(network.name);
  });
  return is_valid && size == data_.size() && count <= kMaxServices && networks <= kMaxNetworks;
}

size_t MemberView::writeText(int64_t generation, std::array<uint8_t, kMaxTextSize>& to) const {
  if (data_.size() < kHeadSize) return 0;
  std::array<char, 5 + kUuidTextSize> uuid;
  char* at = fmt::format_to(uuid.data(), "uuid=");
  for (size_t i = 0; i < kUuidSize; ++i)
    at = fmt::format_to(at, "{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", data_[i]);
  uint8_t* written = putText(to.data(), {uuid.data(), uuid.size()});
  std::array<char, 11 + 20> number;
  const auto put = [&](std::string_view key, int64_t value) {
    const char* const end = fmt::format_to(number.data(), "{}={}", key, value);
    written = putText(written, {number.data(), end});
  };
  put("token", static_cast<int64_t>(dns::load64(&data_[kUuidSize])));
  if (generation > 0) put("generation", generation);
  return static_cast<size_t>(written - to.data());
}

}  // namespace idetcd::records
