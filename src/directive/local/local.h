// `local`: names of this machine, which are not asked for elsewhere.
//
//   localhost.                              A 127.0.0.1, AAAA ::1, SOA, NS
//   localhost.<any name>., <any>.localhost. A 127.0.0.1, AAAA ::1
//   {0,127,255}.in-addr.arpa.               SOA, NS
//   1.0.0.127.in-addr.arpa.                 PTR localhost.
//
//   other type                              NODATA with SOA
//   DS of a zone                            the next handler, which may be on the parent's side; else NODATA with SOA
//   other name of these zones               NXDOMAIN with SOA
//
// TTL: a week.
// Loop thread only; no allocation, but for debug lines.
#pragma once

#include "base/log.h"
#include "base/metrics.h"
#include "dns/query.h"
#include "resolve/handler.h"

namespace idetcd::directive {

// Answers of a Local. Written on its loop's thread.
struct LocalCounters : metrics::Group {
  using Group::Group;

  // CoreDNS's name.
  metrics::Counter intercepted{*this, "coredns_local_localhost_requests_total",
                               "Queries for localhost below another name, and for names below localhost."};
};

struct LocalSettings {
  bool prefix = true;  // whether localhost.<any name> is local too
};

class Local final : public resolve::Handler {
 public:
  Local(bool prefix, Logger log, metrics::Scope scope)
      : prefix_(prefix), log_(std::move(log)), counters_(std::move(scope)) {}

  resolve::QueryOutcome answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) override;
  resolve::QueryOutcome answerNoData(const dns::Query& query, const resolve::Request& request, uint16_t flags) override;

 private:
  bool isBesideLocalhost(const dns::Query& query) const;
  void noteIntercepted(const dns::Query& query, const resolve::Request& request);

  const bool prefix_;
  const Logger log_;
  LocalCounters counters_;
};

}  // namespace idetcd::directive
