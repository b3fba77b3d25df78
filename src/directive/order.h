// The directives that this server has. Any thread.
#pragma once

#include "resolve/directive.h"

namespace idetcd::directive {

// Each is defined in its folder's setup.cc, or in values/values.cc.
extern const resolve::DirectiveType kAclDirective, kAdminDirective, kAnyDirective, kAutoDirective, kAutopathDirective, kBindDirective, kBufsizeDirective,
    kCacheDirective, kCancelDirective, kChaosDirective, kCookiesDirective, kDebugDirective, kDns64Directive,
    kErrorsDirective, kEtcdDirective, kFileDirective, kForwardDirective, kHeaderDirective, kHealthDirective, kHostsDirective, kIdetcdDirective, kLoadbalanceDirective,
    kLocalDirective, kLogDirective, kLoopDirective, kMinimalDirective, kNsidDirective, kPrivateDirective,
    kPrometheusDirective, kReadyDirective, kReloadDirective, kRewriteDirective, kRrlDirective, kSecondaryDirective, kTcpDirective,
    kTemplateDirective, kTimeoutsDirective, kTlsDirective, kTransferDirective, kTsigDirective,
    kWhoamiDirective, kWorkersDirective, kXdpDirective, kZonelimitDirective;

// In the order of their handlers, as in CoreDNS, except that nothing before the cluster's names hides them.
std::span<const resolve::DirectiveType* const> directives();

// Null: there is none of this name.
const resolve::DirectiveType* findDirective(std::string_view name);

// Adds the paths for operators that exist whether or not the Corefile has the directive (control/). While a
// configuration is built, before any of its directives shares anything.
void addControlPaths(resolve::Process& process);

// Directives of CoreDNS 1.14 that this server does not have.
std::span<const std::string_view> foreignDirectives();

}  // namespace idetcd::directive
