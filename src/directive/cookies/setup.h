// The directive `cookies`: DNS cookies of clients and of upstreams.
#pragma once

#include "base/siphash.h"
#include "dns/server_cookies.h"
#include "resolve/directive.h"
#include "resolver/resolver_settings.h"

namespace idetcd::directive {

struct CookieSettings {
  bool off = false;
  bool require = false;
  std::vector<SipHashKey> secrets;
  std::string secret_file;
};

class CookiesDirective final : public resolve::Directive, public resolver::SettingsSource {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override;
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;
  void fill(resolver::ResolverSettings& to) const override { to.cookies = !settings_.off; }

  const CookieSettings& settings() const { return settings_; }

 private:
  CookieSettings settings_;
  std::shared_ptr<const dns::ServerCookies> cookies_;
};

extern const resolve::DirectiveType kCookiesDirective;

}  // namespace idetcd::directive
