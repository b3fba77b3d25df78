// `hosts`: names and addresses from a file in the format of hosts(5) and from lines in the Corefile.
//
//   name held, type held     NOERROR, the RRset; AA
//   name held, other type    NODATA with SOA; AA; DS, and with `fallthrough_unsupported` all that are not A, AAAA and PTR:
//                            the next handler, else NODATA
//   above a reverse name     the next handler, else NODATA (RFC 8020)
//   above another name       as below, but NXDOMAIN of the next handler becomes NODATA
//   PTR, no such address     the next handler
//   in the zones, not held   the next handler where `fallthrough` says so; else SERVFAIL, as CoreDNS answers: a hosts
//                            file does not say that it is complete, so there is nothing to deny the name with
//   any other name           the next handler
//
// HostsSource reads the file, at first in its constructor, then on the executor, which frees its tables too; a Hosts,
// one a loop, answers from the newest table.
#pragma once

#include "base/executor.h"
#include "base/file_watch.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/metrics.h"
#include "directive/hosts/hosts_table.h"
#include "dns/name.h"
#include "dns/packed_response.h"
#include "dns/query.h"
#include "resolve/request.h"

namespace idetcd::directive {

struct HostsOptions {
  std::string file = "/etc/hosts";
  std::vector<dns::Name> zones{};           // the server block's where the directive names none; empty: every name
  std::vector<std::string> inline_lines{};  // each begins with an address: parseHostsAddress()
  uint32_t ttl_seconds = 3600;              // 1 to 65535
  bool no_reverse = false;
  std::chrono::milliseconds reload{5000};  // 0: the file is read once
  std::vector<dns::Name> fallthrough{};    // zones; `fallthrough` without any is the root
  bool fallthrough_unsupported = false;    // within them, types that a hosts file has not
};

// Of one directive. Written by the thread that reads the file.
struct HostsCounters : metrics::Group {
  using Group::Group;

  metrics::Gauge entries{*this, "coredns_hosts_entries", "Names of the file and of the Corefile."};
};

// Of all directives. Written by any thread that has read a file: the last one counts.
struct HostsReload : metrics::Group {
  using Group::Group;

  metrics::Gauge timestamp{*this, "coredns_hosts_reload_timestamp_seconds",
                           "When the file that was read last was changed, in seconds since 1970."};
};

// The table of one directive, shared by all loops. A failed read warns once, the last content stays. Any thread.
class HostsSource {
 public:
  // Blocks on the file system. `reload` may be null.
  HostsSource(HostsOptions options, HashSeed seed, const std::shared_ptr<Executor>& executor, Logger log,
              const metrics::Scope& metrics = {}, std::shared_ptr<HostsReload> reload = nullptr);

  const HostsOptions& options() const { return shared_->options; }
  // Grows with each new table. acquire: a thread that sees it finds that table, or a newer one, in table().
  uint64_t generation() const { return shared_->generation.load(std::memory_order_acquire); }
  std::shared_ptr<const HostsTable> table() const { return shared_->newest(); }

 private:
  // Kept alive by a running read.
  class Shared {
   public:
    Shared(HostsOptions hosts_options, HashSeed seed, std::shared_ptr<Executor> executor, Logger log,
           const metrics::Scope& metrics, std::shared_ptr<HostsReload> reload);
    void onRead(const Result<std::optional<std::string>>& content);  // one thread at a time
    std::shared_ptr<const HostsTable> newest() const;

    const HostsOptions options;
    std::atomic<uint64_t> generation{0};

   private:
    void warnOnce(const std::string& what);
    void noteReload() const;
    Result<std::shared_ptr<const HostsTable>> build(const std::string* content) const;
    void publish(std::shared_ptr<const HostsTable> table);

    const HostsTable::Options table_options_;
    const std::string inline_text_;
    const std::shared_ptr<Executor> executor_;
    const Logger log_;
    HostsCounters counters_;
    const std::shared_ptr<HostsReload> reload_;
    bool failing_ = false;
    mutable std::mutex mutex_;  // guards table_
    std::shared_ptr<const HostsTable> table_;
  };

  const std::shared_ptr<Shared> shared_;
  std::optional<FileWatch> watch_;
};

// The handler. One loop; no allocation in answer(), but for taking over a new table.
class Hosts {
 public:
  explicit Hosts(std::shared_ptr<const HostsSource> source);

  // The passes over a batch that come before answer().
  void prefetchBucket(uint64_t hash) const { table_->table().prefetchBucket(hash); }
  void prefetchEntry(uint64_t hash) const { table_->table().prefetchEntry(hash); }

  // `order`: of A and of AAAA records (`loadbalance`).
  // `name_exists`: Request::name_exists. What is not held is the next handler's then. `wildcard`: Request::wildcard.
  resolve::QueryOutcome answer(const dns::Query& query, size_t limit, uint16_t flags, const dns::AddressOrder& order = {},
                               bool name_exists = false, uint32_t* wildcard = nullptr) const;
  // After QueryOutcome::nextOfExisting().
  resolve::QueryOutcome answerNoData(const dns::Query& query, size_t limit, uint16_t flags) const;

 private:
  resolve::QueryOutcome answerHit(const dns::Query& query, const records::Entry& entry, size_t limit, uint16_t flags,
                             const dns::AddressOrder& order) const;
  resolve::QueryOutcome answerMiss(const dns::Query& query, size_t limit, uint16_t flags, bool name_exists) const;
  const HostsTable& newestTable() const;

  std::shared_ptr<const HostsSource> source_;
  // This loop's table; replaced when the source has a newer one.
  mutable std::shared_ptr<const HostsTable> table_;
  mutable uint64_t generation_;
};

}  // namespace idetcd::directive
