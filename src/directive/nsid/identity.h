// The identity of this node: the NSID option (RFC 5001), CH TXT `id.server.` and `hostname.bind.` (RFC 4892), and PTR
// of its own addresses (ownAddress()). It is the node's name, or `nsid DATA`. A name is given only while its ownership
// is confirmed, when the answer is written. One for each server block, shared by its loops. Any thread; what it returns
// lives as long as it does.
#pragma once

#include "base/ip_address.h"
#include "dns/name.h"
#include "dns/query.h"
#include "resolve/chain.h"
#include "resolve/handler.h"

namespace idetcd::directive {

// Texts of class CH, which a server says of itself (RFC 4892). Any thread; no allocation.
constexpr size_t kMaxChaosText = 255;  // bytes of one character-string

// One TXT record each, TTL 0, with AA; none if the query is for another type than TXT or ANY. REQUIRES: none is longer
// than kMaxChaosText.
resolve::QueryOutcome answerWithTexts(const dns::Query& query, size_t limit, uint16_t flags,
                                      std::span<const std::string> texts);

// An address's relation to this node, at this moment.
struct OwnAddress {
  bool is_own = false;
  std::optional<dns::Name> name;  // that the node owns
  uint32_t ttl_seconds = 0;
};

struct NsidSettings {
  std::string data;  // empty: the node's name
};

class Identity final : public resolve::NsidSource {
 public:
  struct Options {
    // The name that is owned now, with its trailing dot. Empty: this block belongs to no cluster.
    std::function<std::optional<std::string>()> own_name{};
    std::function<std::vector<IpAddress>()> own_addresses{};
    std::string nsid{};  // of `nsid DATA`: said instead of the name
    uint32_t ttl_seconds = 5;
  };

  explicit Identity(Options options) : options_(std::move(options)) {}

  // Without the trailing dot, as host names are written. Null: nothing to say.
  const std::string* text() const override;
  // From now on `own_name` is not called: its owner goes, while answers that come late are still to be written.
  // REQUIRES: no new query is answered with this.
  void disown() const;
  // id.server. and hostname.bind., REFUSED if there is nothing to say; kNext for every other name of class CH.
  resolve::QueryOutcome answerChaos(const dns::Query& query, size_t limit, uint16_t flags) const;
  // Whether the address is one of this node's, and the name that it owns.
  OwnAddress ownAddress(const IpAddress& address) const;

 private:
  const Options options_;
  mutable std::mutex mutex_;  // guards what follows, and the call of own_name in text()
  mutable bool disowned_ = false;
  mutable std::deque<std::string> said_;  // every text that was ever said: as many as this node had names
};

// This machine's; empty: it has none.
std::string hostName();

// Has a chain say which node this is: NSID, and the names of class CH.
void addIdentity(resolve::Chain& chain, std::shared_ptr<const Identity> identity);
// The names alone.
void addServerNames(resolve::Chain& chain, std::shared_ptr<const Identity> identity);

}  // namespace idetcd::directive
