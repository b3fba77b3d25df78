#include "resolve/whoami.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "dns/response.h"

namespace idetcd::resolve {

using dns::RrType;

namespace {

// A record of class IN and TTL 0. Octets are appended; there is room for all that is made here.
class Record {
 public:
  Record& octets(std::span<const uint8_t> from) {
    end_ = std::copy(from.begin(), from.end(), end_);
    return *this;
  }
  Record& text(std::string_view from) {
    end_ = std::copy(from.begin(), from.end(), end_);
    return *this;
  }
  Record& u16(uint16_t value) {
    dns::store16(end_, value);
    end_ += 2;
    return *this;
  }
  Record& head(RrType type, uint16_t rdata_size) {
    return u16(dns::code(type)).u16(dns::code(dns::RrClass::kIn)).u16(0).u16(0).u16(rdata_size);
  }
  std::span<const uint8_t> span() const { return {octets_.data(), end_}; }

 private:
  std::array<uint8_t, 64> octets_{};
  uint8_t* end_ = octets_.data();
};

constexpr uint16_t kQuestionPointer = 0xc00c;

}  // namespace

Outcome answerWhoami(const dns::Query& query, const Request& request, uint16_t flags) {
  const auto source = SocketAddress::fromSockaddr(request.source).value_or(SocketAddress{});
  const auto address_size = static_cast<uint16_t>(source.ip.size());
  Record address;
  address.u16(kQuestionPointer)
      .head(source.ip.isV4() ? RrType::kA : RrType::kAaaa, address_size)
      .octets({source.ip.data(), address_size});

  // _udp.<qname> SRV 0 0 <port> . — unless that name is too long.
  const std::string_view label = request.transport == Transport::kUdp ? "\x04_udp" : "\x04_tcp";
  Record service;
  service.text(label).u16(kQuestionPointer).head(RrType::kSrv, 7).u16(0).u16(0).u16(source.port).text({"\0", 1});

  dns::ResponseBuilder response(query, request.response_limit);
  response.addAdditional(address.span(), 1);
  if (query.qname_size + label.size() <= dns::kMaxNameLength) response.addAdditional(service.span(), 1);
  return Outcome::answer(response.finish(dns::Rcode::kNoError, static_cast<uint16_t>(flags | dns::kFlagAa)));
}

}  // namespace idetcd::resolve
