#include "directive/nsid/identity.h"

#include "dns/response.h"
#include "directive/nsid/chaos_text.h"

namespace idetcd::directive {

namespace {

bool isServerIdName(const dns::Query& query) {
  static const dns::Name kIdServer = dns::Name::parse("id.server.").value();
  static const dns::Name kHostnameBind = dns::Name::parse("hostname.bind.").value();
  const auto is = [&query](const dns::Name& name) { return std::ranges::equal(query.name(), name.wire()); };
  return is(kIdServer) || is(kHostnameBind);
}

}  // namespace

const std::string* Identity::text() const {
  if (!options_.nsid.empty()) return &options_.nsid;
  const std::lock_guard lock(mutex_);
  if (!options_.own_name || disowned_) return nullptr;
  std::optional<std::string> name = options_.own_name();
  if (!name) return nullptr;
  if (name->ends_with('.')) name->pop_back();
  const auto it = std::find(said_.begin(), said_.end(), *name);
  return it != said_.end() ? &*it : &said_.emplace_back(std::move(*name));
}

void Identity::disown() const {
  const std::lock_guard lock(mutex_);
  disowned_ = true;
}

resolve::QueryOutcome Identity::answerChaos(const dns::Query& query, size_t limit, uint16_t flags) const {
  if (!isServerIdName(query)) return resolve::QueryOutcome::next();
  const std::string* said = text();
  if (said != nullptr && said->size() <= kMaxChaosText) return answerWithTexts(query, limit, flags, std::span(said, 1));
  return resolve::QueryOutcome::answer(dns::ResponseBuilder(query, limit).finish(dns::Rcode::kRefused, flags));
}

OwnAddress Identity::ownAddress(const IpAddress& address) const {
  if (!options_.own_name || !options_.own_addresses) return {};
  const std::vector<IpAddress> addresses = options_.own_addresses();
  OwnAddress own{.is_own = std::find(addresses.begin(), addresses.end(), address) != addresses.end(),
                 .name = {},
                 .ttl_seconds = options_.ttl_seconds};
  if (!own.is_own) return own;
  const std::optional<std::string> text = options_.own_name();
  if (!text) return own;
  if (const auto name = dns::Name::parse(*text)) own.name = *name;
  return own;
}

}  // namespace idetcd::directive
