// The directive `bind`: the addresses that a server block listens on.
#include "base/ip_address.h"
#include "base/text.h"
#include "config/option_table.h"
#include "directive/bind/settings.h"
#include "net/local_addresses.h"
#include "resolve/directive.h"
#include "resolver/resolver_settings.h"

namespace idetcd::directive {

namespace {

// A mistyped address is none.
bool mayBeInterface(std::string_view text) {
  const auto is_numeric = [](char c) { return isDigit(c) || c == '.'; };
  return net::mayNameInterface(text) && !std::all_of(text.begin(), text.end(), is_numeric);
}

config::Field<BindSettings> addressesOrInterfaces(std::vector<std::string> BindSettings::*field) {
  return [field](config::DirectiveCursor& cursor, BindSettings& settings) -> Result<void> {
    const auto arguments = cursor.args(1);
    if (!arguments) return tl::unexpected(arguments.error());
    for (const std::string& argument : *arguments) {
      if (!IpAddress::parse(argument) && !mayBeInterface(argument)) {
        return cursor.error(fmt::format("not an IP address or the name of an interface: '{}'", argument));
      }
      (settings.*field).push_back(argument);
    }
    return {};
  };
}

// Addresses and interfaces as addresses.
Result<std::vector<SocketAddress>> resolveAddresses(const std::vector<std::string>& texts) {
  std::vector<SocketAddress> addresses;
  for (const std::string& text : texts) {
    if (const auto ip = IpAddress::parse(text)) {
      addresses.push_back({.ip = *ip});
      continue;
    }
    const auto of_interface = net::interfaceAddresses(text);
    if (!of_interface)
      return fail(fmt::format("bind: '{}' is no IP address, and there is {}", text, of_interface.error().message));
    addresses.insert(addresses.end(), of_interface->begin(), of_interface->end());
  }
  return addresses;
}

class BindDirective final : public resolve::Configured<BindSettings>, public resolver::SettingsSource {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block&) override {
    static const config::Options<BindSettings> kOptions{
        addressesOrInterfaces(&BindSettings::listen),
        {{"except", "except ADDRESS|INTERFACE...", addressesOrInterfaces(&BindSettings::except)}}};
    return kOptions.read(cursor, settings_);
  }
  void fill(resolver::ResolverSettings& to) const override { to.listen = settings_.listen; }

  Result<std::vector<SocketAddress>> listenAddresses() const override {
    auto listen = resolveAddresses(settings_.listen);
    if (!listen) return listen;
    const auto except = resolveAddresses(settings_.except);
    if (!except) return except;
    std::vector<SocketAddress> addresses;
    for (const SocketAddress& address : *listen) {
      const auto same = [&address](const SocketAddress& other) { return other.ip == address.ip; };
      if (std::none_of(except->begin(), except->end(), same) &&
          std::none_of(addresses.begin(), addresses.end(), same)) {
        addresses.push_back(address);
      }
    }
    if (addresses.empty() && !settings_.listen.empty()) return fail("bind: no address is left to listen on");
    return addresses;
  }
};

}  // namespace

extern const resolve::DirectiveType kBindDirective{
    .name = "bind",
    .syntax = "bind ADDRESS|INTERFACE... [{ except ADDRESS|INTERFACE... }]",
    .make = resolve::makeDirective<BindDirective>};

}  // namespace idetcd::directive
