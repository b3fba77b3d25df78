#include "naming/shared_address.h"

namespace idetcd::naming {

void SharedAddress::put(const store::KeyValue& kv, const NodeRecord& record) {
  const NodeRecord& own = own_();
  const auto same = [](const auto& a, const auto& b) { return a && a == b; };
  const bool four = same(record.ipv4, own.ipv4);
  const bool six = same(record.ipv6, own.ipv6);
  if ((!four && !six) || kv.lease == 0 || record.id == own.id || !pattern_.recognise(kv.key)) {
    remove(kv.key);
    return;
  }
  if (named_.contains(kv.key)) return;
  counters_.shared_addresses.add();
  if (named_.size() >= kMaxNamed) return;
  named_.insert(kv.key);
  log_.warning("{} has this node's address {} too: clients of one of the two may reach the other", kv.key,
               (four ? record.ipv4 : record.ipv6)->toString());
}

void SharedAddress::remove(std::string_view key) {
  if (!named_.empty()) named_.erase(std::string(key));
}

}  // namespace idetcd::naming
