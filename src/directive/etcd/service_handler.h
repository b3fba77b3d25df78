// Answers from the services that etcd has: skydns/lookup.h.
//
//   a name in the zones           its records, NODATA, or NXDOMAIN; the next handler where `fallthrough` says so
//   nothing was read yet          SERVFAIL, EDE 14
//   an alias out of the zone      what this server answers to the client for its target, behind the alias. Of a query without
//                                 RD, and of an inner one, the alias alone
//   etcd is away                  as before, with EDE 3
//   DS of a zone's own name       the next handler, else NODATA
//   above a zone                  the next handler, whose NXDOMAIN becomes NODATA (RFC 8020)
//   any other name                the next handler
//
// One per server block and loop; loop thread only.
#pragma once

#include "dns/packed_response.h"
#include "resolve/chain.h"
#include "resolve/deferred_reply.h"
#include "resolve/handler.h"
#include "skydns/lookup.h"

namespace idetcd::directive {

class ServiceHandler final : public resolve::Handler {
 public:
  struct Options {
    std::shared_ptr<const skydns::ServiceSet> services;
    std::vector<dns::Name> zones;
    std::vector<dns::Name> fallthrough{};
    bool rotates = false;                // `loadbalance`
    std::vector<IpNetwork> preferred{};  // of the same
    HashSeed hash_seed{};                // of the chain's queries
    resolve::DirectiveId directive = resolve::DirectiveNames::kServer;  // who has answered
    // Of the block; may be null.
    std::shared_ptr<const resolve::NsidSource> nsid{};
    std::shared_ptr<resolve::RateLimiter> limiter{};
    std::shared_ptr<const resolve::QueryObserver> log{};
  };

  // `index`: its place in `chain`, which outlives it.
  ServiceHandler(const resolve::Chain& chain, size_t index, Options options);

  resolve::QueryOutcome answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) override;
  resolve::QueryOutcome answerNoData(const dns::Query& query, const resolve::Request& request, uint16_t flags) override;
  bool hasZoneAbove(std::span<const uint8_t> name) const override { return zoneOf(dns::parentOf(name)) != nullptr; }

 private:
  using Reply = std::unique_ptr<resolve::DeferredReply>;
  class Sink;
  class Deferrer;

  const skydns::ServiceTable* newestTable();
  const dns::Name* zoneOf(std::span<const uint8_t> name) const;
  resolve::QueryOutcome askForeign(const dns::Query& query, const resolve::Request& request, uint16_t flags);
  resolve::QueryOutcome ask(const dns::Query& client, const dns::Name& name, const resolve::Request& request,
                            Deferrer& deferrer, uint16_t flags);
  size_t conclude(const dns::Query& query, size_t limit, uint16_t flags, const skydns::ForeignAnswer& foreign);
  void onForeign(Reply reply, uint16_t flags, const skydns::ForeignAnswer& foreign);
  size_t write(const dns::Query& query, size_t limit, uint16_t flags, BootClock::time_point now) const;

  const resolve::Chain& chain_;
  const size_t index_;
  const Options options_;
  // This loop's table; replaced when there is a newer one. Null: there is none yet.
  std::shared_ptr<const skydns::ServiceTable> table_;
  uint64_t generation_;
  skydns::Lookup lookup_;
  std::vector<uint8_t> question_room_;  // where our own questions are answered
  std::vector<uint8_t> reply_room_;     // where late responses are written
};

}  // namespace idetcd::directive
