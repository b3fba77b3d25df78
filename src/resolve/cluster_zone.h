// Answers for the names of a cluster, out of a RecordStore: the directive `idetcd` at query time.
//
//   name held, type held      NOERROR, the RRset
//   name held, other type     NODATA with SOA         (empty non-terminals and the apex too)
//   TXT of a member           its UUID and its fencing token
//   all members, a service    A and AAAA, SRV of its members in turn, as many as fit, with TC if these are not all
//   DS of the apex            the next handler, which may be on the parent's side (RFC 4035 §3.1.4.1), else NODATA
//   zone, no such name        NXDOMAIN with SOA, or the next handler where `fallthrough` says so
//   before the first snapshot SERVFAIL, EDE 14: what is not known is not non-existent
//   etcd away for long        the last known answer with EDE 3 (a denial: EDE 19)
//   etcd away since the start what a file has kept, with EDE 3; SERVFAIL, EDE 14 for what it does not hold
//   above the zone or a name  the next handler, whose NXDOMAIN becomes NODATA (RFC 8020)
//   any other name            the next handler, and the hosts that the zone is read from, too
//
// Any loop thread, inside a ReadSection of the store's EpochDomain; no allocation.
#pragma once

#include "dns/name.h"
#include "dns/query.h"
#include "dns/response.h"
#include "records/record_store.h"
#include "resolve/request.h"

namespace idetcd::resolve {

class ClusterZone {
 public:
  struct Options {
    std::vector<dns::Name> fallthrough{};  // zones in which a name that does not exist goes on to the next handler
    // Names in the zone that lead to its own source: they go on even before the first snapshot, which would else wait
    // for them, and they for it.
    std::vector<dns::Name> sources{};
  };

  ClusterZone(const records::RecordStore& store, Options options) : store_(store), options_(std::move(options)) {}

  const records::RecordTable& table() const { return store_.table(); }
  const records::RecordStore& store() const { return store_; }
  const Options& options() const { return options_; }

  // The response in query.message, or next: not a name of ours. `flags`: added to the header's. `now`: read after the
  // query was received, so that what became stale while this process stood still is marked as stale.
  [[gnu::always_inline]] QueryOutcome answer(const dns::Query& query, size_t limit, uint16_t flags,
                                             BootClock::time_point now) const {
    const records::Entry* entry = store_.table().find(query.hash, query.name());
    if (entry != nullptr && store_.isFresh(now)) [[likely]] {
      const records::Entry::Rrset rrset = entry->find(query.qtype);
      const size_t size =
          rrset.count > 0 ? dns::writeFastAnswer(query, rrset.wire, rrset.count, limit, flags | dns::kFlagAa) : 0;
      if (size > 0) [[likely]]
        return QueryOutcome::answer(size);
    }
    if (entry == nullptr && !isInZone(query)) return QueryOutcome::next();  // the rest of the world
    return find(query, entry, limit, flags, store_.freshness(now));
  }
  // After QueryOutcome::nextOfExisting().
  QueryOutcome answerNoData(const dns::Query& query, size_t limit, uint16_t flags) const;

 private:
  using Freshness = records::Freshness;
  QueryOutcome find(const dns::Query& query, const records::Entry* entry, size_t limit, uint16_t flags,
                    Freshness freshness) const;
  QueryOutcome writeHit(const dns::Query& query, const records::Entry& entry, size_t limit, uint16_t flags,
                        Freshness freshness) const;
  QueryOutcome writeGroup(const dns::Query& query, const records::MemberGroup& group, size_t limit, uint16_t flags,
                          Freshness freshness) const;
  QueryOutcome writeText(const records::Entry& entry, dns::ResponseBuilder& response, uint16_t flags) const;
  QueryOutcome writeMiss(const dns::Query& query, size_t limit, uint16_t flags, Freshness freshness) const;
  QueryOutcome writeNotReady(const dns::Query& query, size_t limit, uint16_t flags) const;
  QueryOutcome writeNoData(const dns::Query& query, dns::ResponseBuilder& response, uint16_t flags) const;
  QueryOutcome writeApex(const dns::Query& query, dns::ResponseBuilder& response, uint16_t flags) const;
  void addSoa(const dns::Query& query, dns::ResponseBuilder& response, bool in_zone) const;
  bool isInZone(const dns::Query& query) const;
  bool fallsThrough(const dns::Query& query) const;
  bool isSource(const dns::Query& query) const;
  bool isParents(const dns::Query& query) const;

  const records::RecordStore& store_;
  const Options options_;
};

}  // namespace idetcd::resolve
