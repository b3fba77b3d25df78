#include "resolver/kept_caches.h"

namespace idetcd::resolver {

namespace {

void append(std::string& text, std::string_view what, const std::vector<dns::Name>& names) {
  text += what;
  for (const dns::Name& name : names) text += " " + name.toString();
}

}  // namespace

std::string KeptCaches::keysOf(const resolve::Block& block) {
  std::string text;
  for (const config::ServerKey& key : block.keys) text += (text.empty() ? "" : " ") + key.text;
  return text;
}

std::string KeptCaches::nameOf(const std::string& keys, const std::vector<std::string>& listen) const {
  const auto announced = announced_.find(keys);
  if (announced == announced_.end() || announced->second == 1) return keys;
  return fmt::format("{} on {}", keys, fmt::join(listen, " "));
}

std::string KeptCaches::rulesOf(const ResolverSettings& settings, bool has_gate) {
  std::string text = has_gate ? "acl\n" : "";
  if (!settings.withheld) return text;
  const PrivateSettings& withheld = *settings.withheld;
  append(text, "private", withheld.zones);
  append(text, " allow", withheld.allowed);
  append(text, " own", settings.own_names);
  for (const IpNetwork& network : withheld.networks)
    text += fmt::format(" {}/{}", network.address.toString(), network.prefix_length);
  return text + (withheld.allow_loopback ? " allow_loopback\n" : "\n");
}

std::string KeptCaches::serversOf(const ResolverSettings& settings) {
  std::string text;
  for (const Forwarder::Options& forward : settings.forwards) {
    append(text, "forward", forward.from);
    for (const UpstreamTarget& to : forward.to) {
      if (to.server) text += fmt::format(" {}%{}", to.server->toString(), to.server->server_name);
      if (to.host) text += fmt::format(" {}:{}", to.host->name.toString(), to.host->port);
      text += " " + to.file;
    }
    append(text, " except", forward.except);
    text += forward.trust_ad ? " trust-ad\n" : "\n";
  }
  return text;
}

KeptCaches::Found KeptCaches::of(const Block& block, size_t worker, net::EventLoop& loop, const Cache::Options& options,
                                 const metrics::Scope& metrics) {
  const std::pair key{worker, block.name};
  if (const auto used = used_.find(key); used != used_.end()) {
    auto cache = used->second.cache.lock();
    if (cache && used->second.loop == &loop && used->second.block == block) {
      next_[key] = used->second;
      changes_.push_back({loop, cache, options});
      return {cache, false};
    }
  }
  auto cache = std::make_shared<Cache>(options, metrics, executor_);
  next_[key] = {block, &loop, cache};
  return {cache, true};
}

void KeptCaches::accept() {
  used_ = std::exchange(next_, {});
  for (Change& change : std::exchange(changes_, {})) {
    change.loop.post([cache = std::move(change.cache), options = std::move(change.options)] {
      if (const auto kept = cache.lock()) kept->setOptions(options);
    });
  }
  announced_.clear();
}

void KeptCaches::refuse() {
  next_.clear();
  changes_.clear();
  announced_.clear();
}

}  // namespace idetcd::resolver
