#include "app/syntax.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace idetcd::app {

namespace {

struct Line {
  std::string_view directive;
  std::string_view option;
  std::string_view syntax;
};

constexpr std::string_view kZones = "fallthrough [ZONES...]";

// As README.md shows them.
constexpr Line kLines[] = {
    {"idetcd", "", "idetcd { ... }"},
    {"idetcd", "endpoint", "endpoint http://HOST:PORT..."},
    {"idetcd", "limit", "limit N"},
    {"idetcd", "pattern", "pattern NAME{{.ID}}.ZONE."},
    {"idetcd", "ttl", "ttl DURATION, like 5s"},
    {"idetcd", "lease", "lease DURATION, like 20s"},
    {"idetcd", "reconcile", "reconcile DURATION, like 60s"},
    {"idetcd", "watch", "watch pattern, or watch RANGE..."},
    {"idetcd", "when-full", "when-full wait, or when-full exit"},
    {"idetcd", "address", "address IP..."},
    {"idetcd", "interface", "interface NAME"},
    {"idetcd", "fallthrough", kZones},
    {"idetcd", "observe", "observe"},
    {"idetcd", "tls", "tls [CERT KEY] [CA]"},
    {"idetcd", "credentials", "credentials USER PASSWORD"},
    {"idetcd", "state", "state DIRECTORY"},
    {"idetcd", "on-claim", "on-claim COMMAND [ARGUMENT...]"},
    {"forward", "", "forward FROM TO... [{ ... }], TO being IP[:port], tls://IP or a file like /etc/resolv.conf"},
    {"forward", "except", "except ZONES..."},
    {"forward", "force_tcp", "force_tcp"},
    {"forward", "prefer_udp", "prefer_udp"},
    {"forward", "expire", "expire DURATION, like 10s"},
    {"forward", "max_fails", "max_fails N"},
    {"forward", "tls", "tls [[CERT KEY] CA]"},
    {"forward", "tls_servername", "tls_servername NAME"},
    {"forward", "policy", "policy random|round_robin|sequential"},
    {"forward", "health_check", "health_check DURATION [no_rec] [domain NAME]"},
    {"forward", "max_concurrent", "max_concurrent N"},
    {"forward", "next", "next RCODE..., like next NXDOMAIN"},
    {"forward", "failfast_all_unhealthy_upstreams", "failfast_all_unhealthy_upstreams"},
    {"forward", "failover", "failover RCODE..."},
    {"forward", "trust-ad", "trust-ad"},
    {"cache", "", "cache [TTL] [ZONES...] [{ ... }]"},
    {"cache", "success", "success CAPACITY [TTL] [MINTTL]"},
    {"cache", "denial", "denial CAPACITY [TTL] [MINTTL]"},
    {"cache", "prefetch", "prefetch AMOUNT [DURATION] [PERCENTAGE%]"},
    {"cache", "serve_stale", "serve_stale [DURATION] [immediate|verify]"},
    {"cache", "servfail", "servfail DURATION, at most 5m"},
    {"cache", "disable", "disable success|denial"},
    {"cache", "keepttl", "keepttl"},
    {"hosts", "", "hosts [FILE [ZONES...]] [{ ... }]"},
    {"hosts", "ttl", "ttl SECONDS, from 1 to 65535"},
    {"hosts", "reload", "reload DURATION, like 5s"},
    {"hosts", "no_reverse", "no_reverse"},
    {"hosts", "fallthrough", kZones},
    {"acl", "", "acl [ZONES...] { allow|block|filter|drop [type TYPE...] [net NETWORK...] }"},
    {"bind", "", "bind ADDRESS|INTERFACE... [{ except ADDRESS|INTERFACE... }]"},
    {"workers", "", "workers N"},
    {"bufsize", "", "bufsize [SIZE], from 512 to 4096"},
    {"nsid", "", "nsid [DATA]"},
    {"log", "", "log [NAMES...] [FORMAT] [{ class success|denial|error|all... }]"},
    {"errors", "", "errors [{ consolidate DURATION REGEX }]"},
    {"any", "", "any"},
    {"loop", "", "loop"},
    {"minimal", "", "minimal"},
    {"loadbalance", "", "loadbalance [round_robin]"},
    {"whoami", "", "whoami"},
};

constexpr std::string_view kWrite = "; write: ";

char folded(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

// Letters to insert, delete, replace or swap with their neighbour; the words are short.
size_t editDistance(std::string_view a, std::string_view b) {
  constexpr size_t kLongest = 40;
  if (a.size() > kLongest || b.size() > kLongest) return kLongest;
  std::array<std::array<size_t, kLongest + 1>, kLongest + 1> cost{};
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = folded(a[i - 1]) == folded(b[j - 1]);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (same ? 0 : 1)});
      const bool swapped =
          i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) && folded(a[i - 2]) == folded(b[j - 1]);
      if (swapped) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::string_view syntaxOf(std::string_view directive, std::string_view option) {
  const auto line = std::find_if(std::begin(kLines), std::end(kLines), [&](const Line& candidate) {
    return candidate.directive == directive && candidate.option == option;
  });
  return line != std::end(kLines) ? line->syntax : std::string_view{};
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> known) {
  std::string_view best;
  size_t least = word.size() <= 4 ? 2 : 3;  // fewer edits than this
  for (const std::string_view candidate : known) {
    const size_t distance = editDistance(word, candidate);
    if (distance >= least || distance >= candidate.size()) continue;
    least = distance;
    best = candidate;
  }
  return best;
}

std::string suggestion(std::string_view word, std::span<const std::string_view> known) {
  if (const auto meant = nearest(word, known); !meant.empty()) return fmt::format(", did you mean '{}'?", meant);
  return fmt::format("{}one of {}", kWrite, fmt::join(known, ", "));
}

std::string withSyntax(std::string_view messages, std::string_view syntax) {
  std::string text;
  while (!messages.empty()) {
    const std::string_view line = messages.substr(0, messages.find('\n'));
    messages.remove_prefix(std::min(line.size() + 1, messages.size()));
    if (!text.empty()) text += '\n';
    text += line;
    const bool says = line.find(kWrite) != line.npos || line.find("did you mean") != line.npos;
    if (!says && !syntax.empty()) text += fmt::format("{}{}", kWrite, syntax);
  }
  return text;
}

}  // namespace idetcd::app
