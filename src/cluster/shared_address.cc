#include "cluster/shared_address.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <system_error>

namespace idetcd::cluster {

void SharedAddress::put(const etcd::KeyValue& kv, const NodeRecord& record) {
  const NodeRecord& own = own_();
  const auto same = [](const auto& a, const auto& b) { return a && a == b; };
  const bool four = same(record.ipv4, own.ipv4);
  const bool six = same(record.ipv6, own.ipv6);
  if ((!four && !six) || kv.lease == 0 || record.id == own.id || !isSlot(kv.key)) {
    remove(kv.key);
    return;
  }
  if (named_.contains(kv.key)) return;
  counters_.shared_addresses.add();
  if (named_.size() >= kMaxNamed) return;
  named_.insert(kv.key);
  log_.warning("{} has this node's address {} too: who asks for one of the two may reach the other", kv.key,
               (four ? record.ipv4 : record.ipv6)->toString());
}

void SharedAddress::remove(std::string_view key) {
  if (!named_.empty()) named_.erase(std::string(key));
}

// The ID of a rendered name is not known, but how patterns can write it: in decimal or in hexadecimal digits.
bool SharedAddress::isSlot(std::string_view key) const {
  const std::string_view prefix = pattern_.literalPrefix();
  if (!key.starts_with(prefix)) return false;
  const std::string_view rest = key.substr(prefix.size());
  return std::ranges::any_of(std::initializer_list<int>{10, 16, 8, 2}, [&](int base) {
    int64_t id = 0;
    const auto read = std::from_chars(rest.data(), rest.data() + rest.size(), id, base);
    return read.ec == std::errc() && id > 0 && id <= limit_ && pattern_.render(id) == key;
  });
}

}  // namespace idetcd::cluster
