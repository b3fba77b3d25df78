// `hosts`: names and addresses from a file in the format of hosts(5) and from lines in the Corefile.
//
//   name held, type held     NOERROR, the RRset; AA
//   name held, other type    NODATA with SOA; AA
//   PTR, no such address     the next handler
//   in the zones, not held   the next handler where `fallthrough` says so; else SERVFAIL, as CoreDNS answers: a hosts
//                            file does not say that it is complete, so there is nothing to deny the name with
//   any other name           the next handler
//
// HostsSource reads the file, at first in its constructor, then on a thread of its own; a Hosts, one a loop, answers
// from the newest table.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/hash.h"
#include "base/log.h"
#include "dns/name.h"
#include "dns/query.h"
#include "resolve/hosts_table.h"
#include "resolve/request.h"
#include "resolve/watched_file.h"

namespace idetcd::resolve {

struct HostsOptions {
  std::string file = "/etc/hosts";
  std::vector<dns::Name> zones{};           // the server block's where the directive names none; empty: every name
  std::vector<std::string> inline_lines{};  // each begins with an address: parseHostsAddress()
  uint32_t ttl_seconds = 3600;              // 1 to 65535
  bool no_reverse = false;
  std::chrono::milliseconds reload{5000};  // 0: the file is read once
  std::vector<dns::Name> fallthrough{};    // zones; `fallthrough` without any is the root
};

// The table of one directive, shared by all loops. A file that cannot be read is warned of once; what it held last
// stays. Any thread.
class HostsSource {
 public:
  HostsSource(HostsOptions options, HashSeed seed, Logger log);
  ~HostsSource();
  HostsSource(const HostsSource&) = delete;
  HostsSource& operator=(const HostsSource&) = delete;

  const HostsOptions& options() const { return options_; }
  // Grows with each new table. acquire: who sees it finds that table, or a newer one, in table().
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  std::shared_ptr<const HostsTable> table() const;

 private:
  void watch();
  void readFile();
  void warnOnce(const std::string& what);
  void publish(std::shared_ptr<const HostsTable> table);

  const HostsOptions options_;
  const HostsTable::Options table_options_;
  const std::string inline_text_;
  const Logger log_;
  WatchedFile file_;      // the constructor's, then the thread's
  bool failing_ = false;  // as file_

  mutable std::mutex mutex_;  // guards table_ and stopping_
  std::shared_ptr<const HostsTable> table_;
  bool stopping_ = false;
  std::condition_variable wake_;
  std::atomic<uint64_t> generation_{0};
  std::thread thread_;  // the last member: it uses all the others
};

// The handler. One loop; no allocation in answer(), but for taking over a new table.
class Hosts {
 public:
  explicit Hosts(std::shared_ptr<const HostsSource> source);

  // The passes over a batch that come before answer().
  void prefetchBucket(uint64_t hash) const { table_->table().prefetchBucket(hash); }
  void prefetchEntry(uint64_t hash) const { table_->table().prefetchEntry(hash); }

  // `rotation`: A and AAAA records begin at this one, modulo their number (`loadbalance`).
  Outcome answer(const dns::Query& query, size_t limit, uint16_t flags, uint32_t rotation = 0) const;

 private:
  Outcome answerHit(const dns::Query& query, const records::Entry& entry, size_t limit, uint16_t flags,
                    uint32_t rotation) const;
  Outcome answerMiss(const dns::Query& query, size_t limit, uint16_t flags) const;
  const HostsTable& newestTable() const;

  std::shared_ptr<const HostsSource> source_;
  // What this loop answers from; replaced when the source has a newer one.
  mutable std::shared_ptr<const HostsTable> table_;
  mutable uint64_t generation_;
};

}  // namespace idetcd::resolve
