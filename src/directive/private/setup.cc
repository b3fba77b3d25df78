#include "directive/private/setup.h"

#include "config/option_table.h"
#include "resolve/directive.h"

namespace idetcd::directive {

namespace {

Acl::Network network(std::string_view text) { return IpNetwork::parse(text).value(); }

// Answers of `forward` are filtered: it makes a filter for each loop.
class PrivateDirective final : public resolve::Configured<resolver::PrivateSettings>, public resolver::SettingsSource {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override {
    using Settings = resolver::PrivateSettings;
    static const config::Options<Settings> kOptions{
        config::zonesIfAny(&Settings::zones),
        {{"allow", "allow ZONES...", config::zones(&Settings::allowed)},
         {"allow_loopback", "allow_loopback", config::flag(&Settings::allow_loopback)},
         {"network", "network NETWORKS..., like network 10.0.0.0/8", config::networks(&Settings::networks)}}};
    settings_.zones = config::zonesOf(block.keys);
    return kOptions.read(cursor, settings_);
  }
  Result<void> prepare(resolve::Process&, const resolve::Block&) override {
    rules_ = std::make_shared<const Acl>(makePrivateRules(settings_));
    return {};
  }
  void fill(resolver::ResolverSettings& to) const override {
    to.withheld = settings_;
    to.address_rules = rules_;
  }

 private:
  std::shared_ptr<const Acl> rules_;
};

}  // namespace

std::vector<Acl::Network> defaultPrivateNetworks() {
  static constexpr std::string_view kNetworks[]{
      "0.0.0.0/8",        // this network; Linux takes 0.0.0.0 for itself
      "10.0.0.0/8",       // RFC 1918
      "100.64.0.0/10",    // carriers' NAT, RFC 6598
      "127.0.0.0/8",      // loopback
      "169.254.0.0/16",   // link-local; metadata of clouds
      "172.16.0.0/12",    // RFC 1918
      "192.168.0.0/16",   // RFC 1918
      "255.255.255.255",  // broadcast
      "::",               // Linux takes it for itself
      "::1",              // loopback
      "fc00::/7",         // unique local, RFC 4193
      "fe80::/10",        // link-local
      "fec0::/10",        // site-local, RFC 3879
  };
  std::vector<Acl::Network> networks;
  for (const std::string_view text : kNetworks) networks.push_back(network(text));
  return networks;
}

Acl makePrivateRules(const resolver::PrivateSettings& settings) {
  std::vector<Acl::RuleSet> rule_sets;
  rule_sets.push_back(
      {.zones = settings.allowed, .rules = {{.action = Acl::Action::kAllow, .types = {}, .networks = {}}}});
  Acl::RuleSet rules{.zones = settings.zones, .rules = {}};
  if (settings.allow_loopback) {
    rules.rules.push_back(
        {.action = Acl::Action::kAllow, .types = {}, .networks = {network("127.0.0.0/8"), network("::1")}});
  }
  rules.rules.push_back({.action = Acl::Action::kBlock,
                         .types = {},
                         .networks = settings.networks.empty() ? defaultPrivateNetworks() : settings.networks});
  rule_sets.push_back(std::move(rules));
  return Acl(rule_sets);
}

extern const resolve::DirectiveType kPrivateDirective{
    .name = "private",
    .syntax = "private [ZONES...] [{ allow ZONES...; allow_loopback; network NETWORKS... }]",
    .make = resolve::makeDirective<PrivateDirective>,
    .once = true};

}  // namespace idetcd::directive
