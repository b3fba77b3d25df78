#include "directive/admin/host_check.h"

#include "base/ip_address.h"
#include "base/text.h"

namespace idetcd::directive {

namespace {

bool isPort(std::string_view text) {
  return text.empty() || (text.front() == ':' && std::all_of(text.begin() + 1, text.end(), isDigit));
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

}  // namespace idetcd::directive
