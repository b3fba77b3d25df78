#include "directive/order.h"

#include "directive/forward/control_paths.h"

namespace idetcd::directive {

std::span<const resolve::DirectiveType* const> directives() {
  static constexpr const resolve::DirectiveType* kDirectives[]{
      &kCancelDirective,       // how long a query may take
      &kTlsDirective,          // what clients over TLS and HTTPS are shown
      &kTimeoutsDirective,     // TCP idle timeouts
      &kReloadDirective,       // reloads a changed Corefile
      &kNsidDirective,         // which node answers
      &kCookiesDirective,      // who has shown its address
      &kBindDirective,         // where a block listens
      &kBufsizeDirective,      // the size of UDP responses
      &kDebugDirective,        // what is logged
      &kWorkersDirective,      // loops
      &kTcpDirective,          // what clients over TCP may take up
      &kReadyDirective,        // says over HTTP whether all is there
      &kHealthDirective,       // says over HTTP that the process lives
      &kPrometheusDirective,   // counts queries and shows what is counted
      &kAdminDirective,        // shows operators the cluster and this node
      &kErrorsDirective,       // reports failures
      &kLogDirective,          // reports answers
      &kLocalDirective,        // names of this machine
      &kAclDirective,          // before all that answers, and before errors too
      &kRrlDirective,          // how often
      &kAnyDirective,          // queries for every type
      &kChaosDirective,        // which software answers
      &kLoadbalanceDirective,  // the order of addresses
      &kTsigDirective,         // who has signed a query
      &kDns64Directive,        // IPv6 addresses for what has IPv4 ones, the cluster's names too
      &kRewriteDirective,      // another question for all that follow
      &kHeaderDirective,       // flags of what all that follow answer
      &kAutopathDirective,     // the clients' search list
      &kTransferDirective,     // who may have copies of zones
      &kIdetcdDirective,       // the names of the cluster
      &kXdpDirective,          // the same, where packets come in
      &kTemplateDirective,     // answers out of the query
      &kHostsDirective,        // a hosts file
      &kFileDirective,         // zones from files
      &kAutoDirective,         // the zones of a folder
      &kSecondaryDirective,    // zones of other servers
      &kEtcdDirective,         // services that etcd has
      &kCacheDirective,        // kept answers of `forward`
      &kMinimalDirective,      // answers of `forward` without what was not asked for
      &kPrivateDirective,      // answers of `forward` without private addresses
      &kZonelimitDirective,    // what `forward` is asked of one zone
      &kLoopDirective,         // watches what `forward` is asked
      &kForwardDirective,      // other servers
      &kWhoamiDirective,       // the rest
  };
  return kDirectives;
}

const resolve::DirectiveType* findDirective(std::string_view name) {
  const auto all = directives();
  const auto it = std::find_if(all.begin(), all.end(), [name](const auto* type) { return type->name == name; });
  return it != all.end() ? *it : nullptr;
}

void addControlPaths(resolve::Process& process) { addForwardPaths(process); }

std::span<const std::string_view> foreignDirectives() {
  static constexpr std::string_view kForeign[]{
      "acme", "azure", "clouddns", "dnssec", "dnstap", "erratic", "geoip",
      "grpc", "grpc_server", "https", "https3", "k8s_external", "kubernetes", "metadata",
      "multisocket", "nomad", "on", "pprof", "proxyproto", "quic", "root", "route53",
      "shed", "sign", "trace", "view",
  };
  return kForeign;
}

}  // namespace idetcd::directive
