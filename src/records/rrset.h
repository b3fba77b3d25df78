// The data of one source for one name: RRsets of any types of class IN. Views; any thread; no allocation.
#pragma once

#include "base/ip_address.h"
#include "dns/wire.h"

namespace idetcd::records {

// The addresses of a name. Neither: the name exists and has no data (NODATA for every type).
struct HostAddresses {
  std::optional<IpAddress> ipv4;
  std::optional<IpAddress> ipv6;
  bool operator==(const HostAddresses&) const = default;

  // The addresses that there are, IPv4 first.
  std::vector<IpAddress> list() const {
    std::vector<IpAddress> found;
    for (const auto& address : {ipv4, ipv6}) {
      if (address) found.push_back(*address);
    }
    return found;
  }
};

// Where records come from. Several sources may have records of one name: it has the sum of them (record_store.h). A new
// source is a line here; those with lower numbers come first in the sum.
enum class Source : uint8_t {
  kNone = 0,   // the name only exists: an empty non-terminal, or what the store itself has at the apex
  kEtcd = 1,   // keys of the cluster, with revisions and snapshots
  kFirst = 2,  // the tables of a RecordUnion
  kSecond = 3,
  kNetwork = 4,  // what members say of their addresses in further networks
  kSeveral = 15,  // of an entry only: more than one of those above
};

// One record's data in wire form, without compression. Equal bytes are one record, so names in them are lower case.
using Rdata = std::span<const uint8_t>;

// Of data about a name that no query can ask for: the number is reserved (RFC 6895 §3.1), and dns/query refuses a
// question for it. A member's is memberData(), that of a name in which members are together leads to a MemberGroup.
inline constexpr dns::RrType kMemberType{0};

// Borrowed.
struct Rrset {
  dns::RrType type{};
  uint32_t ttl_seconds = 0;
  std::span<const Rdata> rdata;
};
using RrsetSet = std::span<const Rrset>;

// A and AAAA of a host, and memberData() unless it is empty. Borrows all.
class HostRrsets {
 public:
  HostRrsets(const HostAddresses& addresses, uint32_t ttl_seconds, Rdata member = {}) {
    const auto add = [this, ttl_seconds](dns::RrType type, Rdata rdata) {
      rdata_[count_] = rdata;
      rrsets_[count_] = {type, ttl_seconds, {&rdata_[count_], 1}};
      ++count_;
    };
    if (addresses.ipv4) add(dns::RrType::kA, {addresses.ipv4->data(), addresses.ipv4->size()});
    if (addresses.ipv6) add(dns::RrType::kAaaa, {addresses.ipv6->data(), addresses.ipv6->size()});
    if (!member.empty()) add(kMemberType, member);
  }
  HostRrsets(const HostRrsets&) = delete;
  HostRrsets& operator=(const HostRrsets&) = delete;

  RrsetSet set() const { return {rrsets_.data(), count_}; }

 private:
  std::array<Rdata, 3> rdata_;
  std::array<Rrset, 3> rrsets_;
  size_t count_ = 0;
};

}  // namespace idetcd::records
