#include "directive/admin/page_response.h"

#include "base/hash.h"
#include "base/ip_address.h"
#include "base/text.h"

namespace idetcd::directive {

namespace {

bool isPort(std::string_view text) {
  return text.empty() || (text.front() == ':' && std::all_of(text.begin() + 1, text.end(), isDigit));
}

// RFC 4648, section 4, of bytes in hexadecimal.
std::string base64OfHex(std::string_view hex) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  constexpr size_t kGroup = 6;  // three bytes, four digits
  std::string text;
  for (size_t i = 0; i < hex.size(); i += kGroup) {
    const std::string_view group = hex.substr(i, kGroup);
    const uint32_t bits = parseNumber<uint32_t>(group, 16).value_or(0) << (4 * (kGroup - group.size()));
    const size_t used = group.size() / 2 + 1;
    for (size_t digit = 0; digit < 4; ++digit) {
      text += digit < used ? kDigits[(bits >> (18 - 6 * digit)) & 63] : '=';
    }
  }
  return text;
}

// The content of the document's only element of this name.
std::string_view contentOf(std::string_view document, std::string_view element) {
  const std::string open = fmt::format("<{}>", element);
  const size_t begin = document.find(open);
  if (begin == document.npos) return {};
  const std::string_view rest = document.substr(begin + open.size());
  return rest.substr(0, rest.find(fmt::format("</{}>", element)));
}

std::string digestOf(std::string_view document, std::string_view element) {
  return fmt::format("'sha512-{}'", base64OfHex(sha512(contentOf(document, element))));
}

}  // namespace

std::string hostOf(std::string_view field) {
  std::string_view host = field;
  std::string_view port;
  if (field.starts_with('[')) {
    const size_t end = field.find(']');
    if (end == field.npos) return {};
    host = field.substr(1, end - 1);
    port = field.substr(end + 1);
  } else if (const size_t colon = field.find(':'); colon != field.npos) {
    host = field.substr(0, colon);
    port = field.substr(colon);
  }
  if (!isPort(port)) return {};
  if (host.ends_with('.')) host.remove_suffix(1);
  return lowerCase(host);
}

bool isAddressOrLocalhost(std::string_view host) { return host == "localhost" || IpAddress::parse(host).has_value(); }

std::string policyOf(std::string_view document) {
  return fmt::format(
      "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; base-uri 'none'; "
      "form-action 'none'; frame-ancestors 'none'",
      digestOf(document, "script"), digestOf(document, "style"));
}

http::Response secured(http::Response response) {
  response.fields.emplace_back("Cache-Control", "no-store");
  response.fields.emplace_back("X-Content-Type-Options", "nosniff");
  response.fields.emplace_back("Referrer-Policy", "no-referrer");
  response.fields.emplace_back("Cross-Origin-Resource-Policy", "same-origin");
  return response;
}

http::Response pageResponse() {
  static const std::string kPolicy = policyOf(kPage);
  http::Response response{.body = std::string(kPage), .content_type = "text/html; charset=utf-8"};
  response.fields.emplace_back("Content-Security-Policy", kPolicy);
  return secured(std::move(response));
}

}  // namespace idetcd::directive
