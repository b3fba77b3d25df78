#include "naming/record_codec.h"

#include <iterator>
#include <sstream>

#include "base/json.h"
#include "base/text.h"
#include "node/place.h"

namespace idetcd::naming {
namespace {

using nlohmann::json;

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

// Takes the nine fields of the outermost object and lets everything else pass by. The parser that drives it keeps its
// nesting in a bit vector, not on the stack, and nothing here allocates by depth.
class RecordReader final : public nlohmann::json_sax<json> {
 public:
  NodeRecord& record() { return record_; }
  const std::string& error() const { return error_; }

  bool start_object(std::size_t) override { return enter(true); }
  bool start_array(std::size_t) override {
    if (depth_ == 1) in_list_ = field_ == "services" || field_ == "networks";
    return enter(false);
  }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }

  bool key(string_t& name) override {
    if (depth_ == 1) field_ = lowerCase(name);
    // The last of two wins, whatever it is.
    if (int64_t* const number = numberField()) *number = 0;
    if (depth_ == 1 && field_ == "services") record_.services.clear();
    if (depth_ == 1 && field_ == "topology") record_.place.clear();
    if (depth_ == 1 && field_ == "networks") record_.networks.clear();
    return true;
  }

  bool string(string_t& text) override {
    if (depth_ == 0) return refuse("not a JSON object");
    if (depth_ == 2 && in_list_) field_ == "services" ? takeService(text) : takeNetwork(text);
    if (depth_ > 1) return true;
    if (field_ == "ipv4") return address(text, IpAddress::Family::kV4, &record_.ipv4);
    if (field_ == "ipv6") return address(text, IpAddress::Family::kV6, &record_.ipv6);
    if (field_ == "port") record_.port = text;
    if (field_ == "id") record_.id = text;
    if (field_ == "topology" && node::isPlace(text)) record_.place = text;
    return true;
  }

  bool null() override { return depth_ > 0 || refuse("not a JSON object"); }
  bool boolean(bool) override { return scalar(); }
  bool number_integer(number_integer_t) override { return scalar(); }
  bool number_unsigned(number_unsigned_t number) override {
    if (int64_t* const field = numberField(); field && number <= uint64_t{kMaxToken})
      *field = static_cast<int64_t>(number);
    return scalar();
  }
  bool number_float(number_float_t, const string_t&) override { return scalar(); }
  bool binary(binary_t&) override { return scalar(); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return refuse(fmt::format("not valid JSON at byte {}", position));
  }

 private:
  bool isOurs() const { return field_ == "ipv4" || field_ == "ipv6" || field_ == "port" || field_ == "id"; }

  // The field that a number is to go to; null: none.
  int64_t* numberField() {
    if (depth_ != 1) return nullptr;
    return field_ == "token" ? &record_.token : field_ == "slot" ? &record_.slot : nullptr;
  }

  bool enter(bool object) {
    if (depth_ == 0 && !object) return refuse("not a JSON object");
    if (depth_ == 1 && isOurs()) return refuse(fmt::format("field \"{}\" is not a string", field_));
    ++depth_;
    return true;
  }

  bool leave() {
    if (--depth_ == 1) in_list_ = false;
    return true;
  }

  bool scalar() {
    if (depth_ == 0) return refuse("not a JSON object");
    if (depth_ == 1 && isOurs()) return refuse(fmt::format("field \"{}\" is not a string", field_));
    return true;
  }

  bool address(const std::string& text, IpAddress::Family family, std::optional<IpAddress>* out) {
    out->reset();
    if (text.empty()) return true;
    std::optional<IpAddress> parsed = IpAddress::parse(text);
    if (!parsed || parsed->family() != family) {
      return refuse(fmt::format("field \"{}\" is not an IPv{} address", field_, static_cast<int>(family)));
    }
    *out = parsed;
    return true;
  }

  void takeService(const std::string& text) {
    const auto service = records::parseService(words(text));
    if (service && record_.services.size() < records::kMaxServices) record_.services.push_back(*service);
  }

  void takeNetwork(const std::string& text) {
    const auto network = records::parseNetwork(words(text));
    if (!network || network->addresses.list().empty() || record_.networks.size() == records::kMaxNetworks) return;
    const bool is_new = std::ranges::find(record_.networks, network->name, &records::Network::name) == record_.networks.end();
    if (is_new) record_.networks.push_back(*network);
  }

  bool refuse(std::string why) {
    error_ = std::move(why);
    return false;
  }

  NodeRecord record_;
  std::string field_;  // of the outermost object
  uint32_t depth_ = 0;
  bool in_list_ = false;  // of services or networks
  std::string error_;
};

// A table: a snapshot looks at every byte of every key.
constexpr auto kKeyCharacters = [] {
  std::array<bool, 256> made{};
  for (const char c : std::string_view("abcdefghijklmnopqrstuvwxyz0123456789-_.")) made[static_cast<uint8_t>(c)] = true;
  return made;
}();

bool isInKeys(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return kKeyCharacters[static_cast<uint8_t>(c)]; });
}

}  // namespace

std::string encodeRecord(const NodeRecord& record) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  if (record.ipv4) object["ipv4"] = record.ipv4->toString();
  if (record.ipv6) object["ipv6"] = record.ipv6->toString();
  if (!record.port.empty()) object["port"] = record.port;
  if (!record.id.empty()) object["id"] = record.id;
  if (record.token > 0) object["token"] = record.token;
  if (record.slot > 0) object["slot"] = record.slot;
  for (const records::Service& service : record.services) object["services"].push_back(toString(service));
  if (!record.place.empty()) object["topology"] = record.place;
  for (const records::Network& network : record.networks) {
    if (!network.addresses.list().empty()) object["networks"].push_back(toString(network));
  }
  return toText(object);
}

Result<NodeRecord> decodeRecord(std::string_view value) {
  if (value.size() > kMaxValueBytes) {
    return fail(fmt::format("value of {} bytes, more than {}", value.size(), kMaxValueBytes));
  }
  // The parser takes a NUL for the end of its input, whatever follows.
  if (value.find('\0') != std::string_view::npos) return fail("not valid JSON: a NUL byte");
  RecordReader reader;
  if (!json::sax_parse(value, &reader)) return fail(reader.error());
  return std::move(reader.record());
}

Result<dns::Name> decodeKey(std::string_view key) {
  if (key.empty() || key.back() != '.') return fail("not a fully qualified name: no trailing dot");
  if (key.size() > kMaxKeyBytes) return fail("longer than a domain name may be");
  if (!isInKeys(key)) {
    if (std::ranges::any_of(key, [](char c) { return c >= 'A' && c <= 'Z'; }))
      return fail("upper case: names are looked up in lower case, so this key can never be found");
    return fail("not a host name: a byte other than a-z 0-9 - _");
  }
  Result<dns::Name> name = dns::Name::parse(key);
  if (!name) return name;
  if (name->isRoot()) return fail("the root is no node's name");
  return name;
}

}  // namespace idetcd::naming
