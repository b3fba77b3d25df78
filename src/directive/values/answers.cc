#include "directive/values/answers.h"

#include "dns/record.h"
#include "dns/response.h"

namespace idetcd::directive {

using dns::RrType;

resolve::QueryOutcome answerAny(const dns::Query& query, size_t limit, uint16_t flags) {
  if (query.qtype != dns::code(dns::RrType::kAny)) return resolve::QueryOutcome::next();
  constexpr uint32_t kTtlSeconds = 8482;
  constexpr std::string_view kRdata("\7RFC8482\0", 9);  // HINFO of CPU "RFC8482" and OS "" (RFC 8482 §4.2)
  std::array<uint8_t, dns::kRecordHeadSize + kRdata.size()> record;
  dns::putBytes(
      dns::putRecordHead(record.data(), dns::kQuestionPointer, dns::RrType::kHinfo, kTtlSeconds, kRdata.size()),
      kRdata);
  dns::ResponseBuilder response(query, limit);
  response.addAnswer(record, 1);
  return resolve::QueryOutcome::answer(response.finish(dns::Rcode::kNoError, flags));
}

resolve::QueryOutcome answerWhoami(const dns::Query& query, const resolve::Request& request, uint16_t flags) {
  const auto source = SocketAddress::fromSockaddr(request.source).value_or(SocketAddress{});
  std::array<uint8_t, dns::kRecordHeadSize + 16> address;
  uint8_t* p = dns::putRecordHead(address.data(), dns::kQuestionPointer, source.ip.isV4() ? RrType::kA : RrType::kAaaa,
                                  0, source.ip.size());
  p = dns::putBytes(p, std::span(source.ip.data(), source.ip.size()));
  dns::ResponseBuilder response(query, request.response_limit);
  response.addAdditional({address.data(), p}, 1);

  // _udp.<qname> SRV 0 0 <port> . — unless that name is too long.
  const std::string_view label = request.transport == resolve::Transport::kUdp ? "\x04_udp" : "\x04_tcp";
  if (query.qname_size + label.size() <= dns::kMaxNameLength) {
    constexpr size_t kSrvSize = 7;
    std::array<uint8_t, 5 + dns::kRecordHeadSize + kSrvSize> service;
    p = dns::putBytes(service.data(), label);
    p = dns::putRecordHead(p, dns::kQuestionPointer, RrType::kSrv, 0, kSrvSize);
    p = dns::put16(dns::put32(p, 0), source.port);  // priority and weight 0
    *p++ = 0;                                       // the root
    response.addAdditional({service.data(), p}, 1);
  }
  return resolve::QueryOutcome::answer(
      response.finish(dns::Rcode::kNoError, static_cast<uint16_t>(flags | dns::kFlagAa)));
}

}  // namespace idetcd::directive
