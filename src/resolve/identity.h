// "Which one am I?": what a node says of itself to those who ask over DNS.
//
//   NSID option (RFC 5001)                          the node's name, or what `nsid DATA` says
//   CH TXT id.server., hostname.bind. (RFC 4892)    the same
//   PTR of the node's own addresses                 the node's name: forward and reverse agree
//
// A name is told only while it is owned beyond doubt, at the moment at which the answer is written. One for each server
// block, shared by its loops. Any thread; what it hands out stays valid as long as it lives.
#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/ip_address.h"
#include "dns/query.h"
#include "resolve/request.h"

namespace idetcd::resolve {

class Identity {
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
  const std::string* text() const;
  // From now on `own_name` is not asked: who knows it goes, while answers that come late are still to be written.
  // REQUIRES: no new query is answered with this.
  void disown() const;
  // id.server. and hostname.bind.; REFUSED for every other name and type of class CH.
  Outcome answerChaos(const dns::Query& query, size_t limit, uint16_t flags) const;
  // PTR of an own address; else next.
  Outcome answerReverse(const dns::Query& query, size_t limit, uint16_t flags) const;

 private:
  const Options options_;
  mutable std::mutex mutex_;  // guards what follows, and the call of own_name in text()
  mutable bool disowned_ = false;
  mutable std::deque<std::string> said_;  // every text that was ever said: as many as this node had names
};

}  // namespace idetcd::resolve
