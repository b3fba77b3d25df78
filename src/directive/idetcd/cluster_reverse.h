// The reverse names of the addresses of a cluster's names, out of a RecordStore: each is a zone of its own, since the zones
// around it are others'.
//
//   an address of names      NOERROR, each of them; AA, the lowest TTL, EDE 3 where the table may be old
//   an address of this node  the name that it owns, alone; while it owns none, the next handler
//   another type of these    NODATA with SOA; DS: the next handler, which may be on the parent's side, else NODATA
//   a name above these       the next handler, but it exists: NODATA instead of NXDOMAIN, and if nobody answers (RFC 8020 §2)
//   any other                the next handler
//
// Any loop thread, inside a ReadSection of the store's EpochDomain.
#pragma once

#include "base/ip_address.h"
#include "dns/query.h"
#include "directive/nsid/identity.h"
#include "records/record_store.h"
#include "resolve/request.h"

namespace idetcd::directive {

class ClusterReverse {
 public:
  // `own`: what an address is to this node. Any thread.
  ClusterReverse(const records::RecordStore& store, std::function<OwnAddress(const IpAddress&)> own)
      : store_(store), own_(std::move(own)) {}

  // The response in query.message, or next. `flags`: added to the header's.
  resolve::QueryOutcome answer(const dns::Query& query, size_t limit, uint16_t flags, BootClock::time_point now) const;
  // After QueryOutcome::nextOfExisting().
  resolve::QueryOutcome answerNoData(const dns::Query& query, size_t limit, uint16_t flags) const;

 private:
  const records::RecordStore& store_;
  const std::function<OwnAddress(const IpAddress&)> own_;
};

}  // namespace idetcd::directive
