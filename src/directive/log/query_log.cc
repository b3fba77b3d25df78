#include "directive/log/query_log.h"

#include "dns/message_reader.h"
#include "dns/types.h"

namespace idetcd::directive {

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

constexpr std::string_view kMetadata = "{/";

}  // namespace

ResponseClass classifyResponse(std::span<const uint8_t> message) {
  const dns::HeaderView header(message.data());
  if (header.rcode() == dns::Rcode::kNxDomain) return ResponseClass::kDenial;
  if (header.rcode() != dns::Rcode::kNoError) return ResponseClass::kError;
  return header.answers() == 0 && header.authorities() > 0 ? ResponseClass::kDenial : ResponseClass::kSuccess;
}

// A placeholder is from a '}' back to the last '{' before it, so that braces around one are text: `{"name": "{name}"}`.
LogFormat LogFormat::parse(std::string_view text) {
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
  std::string_view rest = expanded;
  for (size_t close = rest.find('}'); close != rest.npos; close = rest.find('}')) {
    const size_t open = std::min(rest.rfind('{', close), close);
    const std::string_view token = rest.substr(open, close + 1 - open);
    const auto field =
        std::find_if(kFields.begin(), kFields.end(), [token](const auto& f) { return f.first == token; });
    const bool is_metadata = token.starts_with(kMetadata) && token.size() > kMetadata.size() + 1;
    if (field != kFields.end()) {
      format.addLiteral(rest.substr(0, open));
      format.segments_.push_back({field->second, {}});
    } else if (is_metadata) {
      format.addLiteral(rest.substr(0, open));
      format.addLiteral("-");
    } else {
      format.addLiteral(rest.substr(0, close + 1));
    }
    rest.remove_prefix(close + 1);
  }
  format.addLiteral(rest);
  return format;
}

void LogFormat::addLiteral(std::string_view text) {
  if (!text.empty()) segments_.push_back({Field::kLiteral, std::string(text)});
}

std::string LogFormat::render(const dns::Query& query, const resolve::Request& request,
                              std::span<const uint8_t> response, std::chrono::nanoseconds duration) const {
  const auto remote = SocketAddress::fromSockaddr(request.source).value_or(SocketAddress{});
  const dns::HeaderView header(response.data());
  const auto text = [&](const Segment& segment) -> std::string {
    switch (segment.field) {
      case Field::kLiteral:
        return segment.literal;
      case Field::kType:
        return dns::kTypeNames.toString(query.qtype);
      case Field::kName:
        return dns::nameToString(query.qname);
      case Field::kClass:
        return dns::kClassNames.toString(query.qclass);
      case Field::kProto:
        return request.transport == resolve::Transport::kUdp ? "udp" : "tcp";
      case Field::kRemote:
        return remoteText(remote);
      case Field::kLocal:
        return request.local != nullptr ? remoteText(*request.local) : "-";
      case Field::kPort:
        return fmt::to_string(remote.port);
      case Field::kSize:
        return fmt::to_string(query.size);
      case Field::kRcode:
        return dns::kRcodeNames.toString(dns::code(header.rcode()));
      case Field::kRsize:
        return fmt::to_string(response.size());
      case Field::kDuration:
        return fmt::format("{:.9f}s", std::chrono::duration<double>(duration).count());
      case Field::kId:
        return fmt::to_string(header.id());
      case Field::kOpcode:
        return fmt::to_string(static_cast<unsigned>(query.opcode()));
      case Field::kDo:
        return query.dnssec_ok ? "true" : "false";
      case Field::kBufsize:
        return fmt::to_string(query.udp_payload);
      case Field::kRflags:
        return flagsText(header.flags());
    }
    return {};
  };
  std::string line;
  for (const Segment& segment : segments_) line += text(segment);
  return line;
}

void QueryLog::onAnswered(const dns::Query& query, const resolve::Request& request, std::span<const uint8_t> response,
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

}  // namespace idetcd::directive
