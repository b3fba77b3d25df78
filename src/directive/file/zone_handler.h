// Answers from the zones of a ZoneSet.
//
//   a name in a zone           as zones/zone_lookup.h says
//   an alias out of its zone   completed by the whole server
//   no such name               the next handler where `fallthrough` says so
//   a zone that is not there   SERVFAIL, EDE 14
//   DS of a zone's own name    the zone above, of these or of the next handler
//   above a zone               the zone that it is in, else the next handler; NXDOMAIN becomes NODATA (RFC 8020)
//   any other name             the next handler
//
// One loop; no allocation in answer(), but where a new table is taken over.
#pragma once

#include "directive/file/zone_set.h"
#include "dns/packed_response.h"
#include "resolve/directive.h"
#include "resolver/alias_completion.h"

namespace idetcd::directive {

class ZoneHandler final : public resolve::Handler {
 public:
  // `rotates`, `preferred`: the order of addresses (`loadbalance`). `aliases`: null: what leads out of a zone stays as it is.
  ZoneHandler(std::shared_ptr<const ZoneSet> set, bool rotates, std::vector<IpNetwork> preferred,
              std::unique_ptr<resolver::AliasCompletion> aliases);
  // To the chain, as `directive` of the block wants it.
  static void addTo(resolve::Chain& chain, const resolve::LoopContext& context, std::shared_ptr<const ZoneSet> set,
                    std::string_view directive);

  bool prefetches() const override { return true; }
  void prefetchBucket(const dns::Query& query) override;
  void prefetchEntry(const dns::Query& query) override;
  resolve::QueryOutcome answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) override;
  resolve::QueryOutcome answerNoData(const dns::Query& query, const resolve::Request& request, uint16_t flags) override;
  bool hasZoneAbove(std::span<const uint8_t> name) const override;
  bool isBusy() const override { return aliases_ && aliases_->isBusy(); }

 private:
  const ZoneTable& newestTable();
  const ServedZone* likelyZone(const dns::Query& query) const;
  resolve::QueryOutcome ordered(const dns::Query& query, size_t size) const;
  resolve::QueryOutcome answerFrom(const ServedZone& served, const dns::Query& query, const resolve::Request& request,
                                   uint16_t flags);
  resolve::QueryOutcome answerParentSide(const dns::Query& query, const resolve::Request& request, uint16_t flags);
  void orderAddresses(const dns::Query& query, size_t size) const;

  const std::shared_ptr<const ZoneSet> set_;
  const bool rotates_;
  const std::vector<IpNetwork> preferred_;
  // This loop's table; replaced when the set has a newer one.
  std::shared_ptr<const ZoneTable> table_;
  uint64_t generation_;
  const std::unique_ptr<resolver::AliasCompletion> aliases_;
};

}  // namespace idetcd::directive
