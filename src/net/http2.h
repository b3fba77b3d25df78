// What DNS over HTTPS (RFC 8484) needs of HTTP/2 (RFC 9113) on both sides. Any thread.
#pragma once

#include <nghttp2/nghttp2.h>

#include "base/text.h"

namespace idetcd::net {

inline constexpr std::string_view kDohPath = "/dns-query";
inline constexpr std::string_view kDohMediaType = "application/dns-message";
inline constexpr std::string_view kHttp2Protocol = "h2";     // by ALPN
inline constexpr size_t kHeaderFieldOverhead = 32;           // RFC 9113 §6.5.2: many empty ones are many bytes too

inline bool isDnsMessage(std::string_view content_type) {
  std::string_view type = content_type.substr(0, content_type.find(';'));
  while (type.ends_with(' ') || type.ends_with('\t')) type.remove_suffix(1);
  return lowerCase(type) == kDohMediaType;
}

inline std::string_view viewOf(const uint8_t* text, size_t size) { return {reinterpret_cast<const char*>(text), size}; }

inline nghttp2_nv headerField(std::string_view name, std::string_view value) {
  // nghttp2 copies both, and changes neither.
  auto* const name_bytes = reinterpret_cast<uint8_t*>(const_cast<char*>(name.data()));
  auto* const value_bytes = reinterpret_cast<uint8_t*>(const_cast<char*>(value.data()));
  return {name_bytes, value_bytes, name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

struct Http2SessionDeleter {
  void operator()(nghttp2_session* session) const { nghttp2_session_del(session); }
};
using Http2Session = std::unique_ptr<nghttp2_session, Http2SessionDeleter>;

// What the session wants to send, until it is `size` bytes or more. `failed` is set if the session can send no more.
inline std::vector<uint8_t> takeBytes(const Http2Session& session, size_t size, bool& failed) {
  std::vector<uint8_t> bytes;
  while (bytes.size() < size) {
    const uint8_t* data = nullptr;
    const ssize_t taken = nghttp2_session_mem_send(session.get(), &data);
    if (taken < 0) failed = true;
    if (taken <= 0) break;
    bytes.insert(bytes.end(), data, data + taken);
  }
  return bytes;
}

}  // namespace idetcd::net
