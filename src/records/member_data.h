// What a member of a cluster says of itself besides its addresses: who it is, and the services that it offers. One
// record of its entry, of kMemberType. Any thread.
//
//   RDATA: UUID (16) token (8), then for each service: protocol (1) port (2) weight (2) size (1) name
#pragma once

#include "base/result.h"
#include "records/rrset.h"

namespace idetcd::records {

struct Service {
  enum class Protocol : uint8_t { kTcp = 6, kUdp = 17 };  // as IANA numbers them
  std::string name;                                       // lower case, without the '_' (RFC 2782)
  Protocol protocol = Protocol::kTcp;
  uint16_t port = 0;
  uint16_t weight = 1;  // RFC 2782
  bool operator==(const Service&) const = default;
};
inline constexpr size_t kMaxServices = 16;     // of one member
inline constexpr size_t kMaxServiceName = 62;  // with its '_' it is a label

// `NAME tcp|udp PORT [weight W]`, as an option of the Corefile and a member's value have it.
Result<Service> parseService(std::span<const std::string> words);
std::string toString(const Service& service);

// `uuid`: 36 characters in their usual form; empty data if it is something else. REQUIRES: at most kMaxServices.
std::vector<uint8_t> memberData(std::string_view uuid, int64_t token, std::span<const Service> services);

// A view of such data, whole or cut off.
class MemberView {
 public:
  explicit MemberView(Rdata data) : data_(data) {}

  struct ServiceView {
    uint8_t protocol;
    uint16_t port;
    uint16_t weight;
    std::string_view name;
  };
  template <typename Visit>
  void visitServices(Visit visit) const {
    for (Rdata rest = data_.size() > kHeadSize ? data_.subspan(kHeadSize) : Rdata(); rest.size() > kServiceSize;) {
      const size_t size = rest[5];
      if (rest.size() < kServiceSize + size) return;
      visit(ServiceView{rest[0],
                        dns::load16(&rest[1]),
                        dns::load16(&rest[3]),
                        {reinterpret_cast<const char*>(&rest[kServiceSize]), size}});
      rest = rest.subspan(kServiceSize + size);
    }
  }

  // As memberData() makes it. What was read from a file has to be asked.
  bool isValid() const;

  // RDATA of TXT: `uuid=…` and `token=…`. Returns its size.
  static constexpr size_t kMaxTextSize = 1 + 5 + 36 + 1 + 6 + 20;
  size_t writeText(std::array<uint8_t, kMaxTextSize>& to) const;

 private:
  static constexpr size_t kUuidSize = 16;
  static constexpr size_t kHeadSize = kUuidSize + 8;
  static constexpr size_t kServiceSize = 6;  // without its name
  Rdata data_;
};

}  // namespace idetcd::records
