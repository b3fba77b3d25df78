// The keys and values that nodes write into etcd. Pure functions over bytes; any thread.
//
//   key    worker1.tf.local.
//   value  {"ipv4":"192.0.2.2","ipv6":"fd00::2","port":"53","id":"6c3e…","slot":1}
//          {…,"id":"6c3e…","token":4711,"slot":1}     where the key's create_revision is not the token (see NodeRecord)
//          {…,"slot":1,"services":["http tcp 8080 weight 1"],"topology":"zone/rack/switch","networks":["fabric 10.0.0.2"]}
//
// The Go plugin writes the same without "id" and what follows it, and ignores them. Older nodes write no "slot". Values are hostile: decoding is bounded in size and
// depth.
#pragma once

#include "base/ip_address.h"
#include "base/result.h"
#include "dns/name.h"
#include "records/member_data.h"

namespace idetcd::naming {

inline constexpr size_t kMaxKeyBytes = dns::kMaxNameLength;
inline constexpr size_t kMaxValueBytes = 4096;
// The largest integer that every reader of JSON can hold. A value that says more says nothing: it is no token of ours.
inline constexpr int64_t kMaxToken = (int64_t{1} << 53) - 1;

// In the place of a UUID, for a moment: an operator takes the name away (`idetcd release`).
inline constexpr std::string_view kReleased = "released";

struct NodeRecord {
  std::optional<IpAddress> ipv4;
  std::optional<IpAddress> ipv6;
  std::string port;  // of the node's DNS server; as it was written; nothing resolves through it yet
  std::string id;    // UUID of the node that wrote it; empty: not one of ours
  // The least that the fencing token of the one that wrote it is: the token is this or the key's create_revision,
  // whichever is higher. 0: nothing said.
  int64_t token = 0;
  // The ID by the pattern of the one that wrote it: another pattern may have the same name for another ID. 0: not said.
  int64_t slot = 0;
  std::vector<records::Service> services{};  // at most records::kMaxServices
  std::string place{};                       // in the network (node::isPlace()); empty: not said
  std::vector<records::Network> networks{};  // at most records::kMaxNetworks, of different names, with an address each
  bool operator==(const NodeRecord&) const = default;
};

// Compact JSON, in the order above; absent and empty fields are left out.
std::string encodeRecord(const NodeRecord& record);

// As Go's encoding/json reads it: fields in any order and case, the last of two wins, null and "" mean absent, unknown
// fields are skipped. `{}` is a record: a name without data. A token or slot that is no whole number from 0 to kMaxToken
// counts as none, and so does what is no service, no place, or no network.
Result<NodeRecord> decodeRecord(std::string_view value);

// A key is a name if it is what NamePattern::render could have written: absolute, lower case, labels of letters,
// digits, '-' and '_'. There is exactly one such key for a name, so no two keys fight for one record.
Result<dns::Name> decodeKey(std::string_view key);

}  // namespace idetcd::naming
