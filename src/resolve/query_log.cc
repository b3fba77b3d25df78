#include "resolve/query_log.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "dns/text.h"
#include "dns/wire.h"

namespace idetcd::resolve {

namespace {

std::string remoteText(const SocketAddress& address) {
  return address.ip.isV4() ? address.ip.toString() : fmt::format("[{}]", address.ip.toString());
}

std::string flagsText(uint16_t flags) {
  constexpr std::array<std::pair<uint16_t, std::string_view>, 7> kNames{{{dns::kFlagQr, "qr"},
                                                                         {dns::kFlagAa, "aa"},
                                                                         {dns::kFlagTc, "tc"},
                                                                         {dns::kFlagRd, "rd"},
                                                                         {dns::kFlagRa, "ra"},
                                                                         {dns::kFlagAd, "ad"},
                                                                         {dns::kFlagCd, "cd"}}};
  std::string text;
  for (const auto& [bit, name] : kNames) {
    if ((flags & bit) == 0) continue;
    if (!text.empty()) text.push_back(',');
    text += name;
  }
  return text;
}

std::string replaceAll(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

}  // namespace

ResponseClass classifyResponse(std::span<const uint8_t> message) {
  const auto rcode = static_cast<dns::Rcode>(dns::load16(message.data() + 2) & dns::kRcodeMask);
  const uint16_t answers = dns::load16(message.data() + 6);
  const uint16_t authorities = dns::load16(message.data() + 8);
  if (rcode == dns::Rcode::kNxDomain) return ResponseClass::kDenial;
  if (rcode != dns::Rcode::kNoError) return ResponseClass::kError;
  return answers == 0 && authorities > 0 ? ResponseClass::kDenial : ResponseClass::kSuccess;
}

Result<LogFormat> LogFormat::parse(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, Field>, 16> kFields{{
      {"{type}", Field::kType},
      {"{name}", Field::kName},
      {"{class}", Field::kClass},
      {"{proto}", Field::kProto},
      {"{remote}", Field::kRemote},
      {"{local}", Field::kLocal},
      {"{port}", Field::kPort},
      {"{size}", Field::kSize},
      {"{rcode}", Field::kRcode},
      {"{rsize}", Field::kRsize},
      {"{duration}", Field::kDuration},
      {"{>id}", Field::kId},
      {"{>opcode}", Field::kOpcode},
      {"{>do}", Field::kDo},
      {"{>bufsize}", Field::kBufsize},
      {"{>rflags}", Field::kRflags},
  }};
  const std::string expanded = replaceAll(replaceAll(std::string(text), "{common}", kCommon), "{combined}", kCombined);
  LogFormat format;
  std::string literal;
  std::string_view rest = expanded;
  const auto flushLiteral = [&] {
    if (!literal.empty()) format.segments_.push_back({Field::kLiteral, std::exchange(literal, {})});
  };
  while (!rest.empty()) {
    if (rest.front() != '{') {
      literal.push_back(rest.front());
      rest.remove_prefix(1);
      continue;
    }
    const size_t close = rest.find('}');
    if (close == std::string_view::npos) return fail("a '{' without '}' in the log format");
    const std::string_view token = rest.substr(0, close + 1);
    const auto field =
        std::find_if(kFields.begin(), kFields.end(), [token](const auto& f) { return f.first == token; });
    if (field == kFields.end()) return fail(fmt::format("unknown placeholder {} in the log format", token));
    flushLiteral();
    format.segments_.push_back({field->second, {}});
    rest.remove_prefix(close + 1);
  }
  flushLiteral();
  return format;
}

std::string LogFormat::render(const dns::Query& query, const Request& request, std::span<const uint8_t> response,
                              std::chrono::nanoseconds duration) const {
  const auto remote = SocketAddress::fromSockaddr(request.source).value_or(SocketAddress{});
  const uint16_t flags = dns::load16(response.data() + 2);
  const auto text = [&](const Segment& segment) -> std::string {
    switch (segment.field) {
      case Field::kLiteral:
        return segment.literal;
      case Field::kType:
        return dns::typeToString(query.qtype);
      case Field::kName:
        return dns::nameToString(query.qname);
      case Field::kClass:
        return dns::classToString(query.qclass);
      case Field::kProto:
        return request.transport == Transport::kUdp ? "udp" : "tcp";
      case Field::kRemote:
        return remoteText(remote);
      case Field::kLocal:
        return request.local != nullptr ? remoteText(*request.local) : "-";
      case Field::kPort:
        return fmt::to_string(remote.port);
      case Field::kSize:
        return fmt::to_string(query.size);
      case Field::kRcode:
        return dns::rcodeToString(flags & dns::kRcodeMask);
      case Field::kRsize:
        return fmt::to_string(response.size());
      case Field::kDuration:
        return fmt::format("{:.9f}s", std::chrono::duration<double>(duration).count());
      case Field::kId:
        return fmt::to_string(dns::load16(response.data()));
      case Field::kOpcode:
        return fmt::to_string(static_cast<unsigned>(query.opcode()));
      case Field::kDo:
        return query.dnssec_ok ? "true" : "false";
      case Field::kBufsize:
        return fmt::to_string(query.udp_payload);
      case Field::kRflags:
        return flagsText(flags);
    }
    return {};
  };
  std::string line;
  for (const Segment& segment : segments_) line += text(segment);
  return line;
}

void QueryLog::write(const dns::Query& query, const Request& request, std::span<const uint8_t> response,
                     std::chrono::nanoseconds duration) const {
  for (const Rule& rule : rules_) {
    if (!dns::isNameWithin(query.name(), rule.zone)) continue;
    const ResponseClass klass = classifyResponse(response);
    const bool wanted = (klass == ResponseClass::kSuccess && rule.success) ||
                        (klass == ResponseClass::kDenial && rule.denial) ||
                        (klass == ResponseClass::kError && rule.error);
    if (wanted) log_.info("{}", rule.format.render(query, request, response, duration));
    return;
  }
}

}  // namespace idetcd::resolve
