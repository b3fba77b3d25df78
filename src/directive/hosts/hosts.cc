#include "directive/hosts/hosts.h"

#include <sys/stat.h>

#include "dns/response.h"

namespace idetcd::directive {

using dns::Query;
using dns::Rcode;
using dns::ResponseBuilder;
using dns::RrType;
using records::Entry;

namespace {

bool holds(const std::vector<dns::Name>& zones, const Query& query) {
  return std::any_of(zones.begin(), zones.end(),
                     [&query](const dns::Name& zone) { return dns::isNameWithin(query.name(), zone); });
}

std::string join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

bool isAddress(uint16_t type) { return type == dns::code(RrType::kA) || type == dns::code(RrType::kAaaa); }

// Of a wildcard, for Request::wildcard. Not 0.
uint32_t markOf(const Entry& entry, HashSeed seed) {
  const std::span<const uint8_t> name = entry.name();
  return std::max<uint32_t>(static_cast<uint32_t>(hashBytes(name.data(), name.size(), seed)), 1);
}

// Address records are all of one size.
void addOrdered(ResponseBuilder& response, const Entry::Rrset& rrset, const dns::AddressOrder& order) {
  const size_t start = response.position();
  response.addAnswer(rrset.wire, rrset.count);
  const size_t size = response.position() - start;
  if (size == rrset.wire.size()) dns::orderAddresses({response.at(start), size}, size / rrset.count, order);
}

}  // namespace

HostsSource::Shared::Shared(HostsOptions hosts_options, HashSeed seed, std::shared_ptr<Executor> executor, Logger log,
                            const metrics::Scope& metrics, std::shared_ptr<HostsReload> reload)
    : options(std::move(hosts_options)),
      table_options_{
          .zones = options.zones, .ttl_seconds = options.ttl_seconds, .reverse = !options.no_reverse, .seed = seed},
      inline_text_(join(options.inline_lines)),
      executor_(std::move(executor)),
      log_(std::move(log)),
      counters_(metrics.with("hostsfile", options.file)),
      reload_(std::move(reload)) {}

HostsSource::HostsSource(HostsOptions options, HashSeed seed, const std::shared_ptr<Executor>& executor, Logger log,
                         const metrics::Scope& metrics, std::shared_ptr<HostsReload> reload)
    : shared_(
          std::make_shared<Shared>(std::move(options), seed, executor, std::move(log), metrics, std::move(reload))) {
  WatchedFile file(shared_->options.file);
  shared_->onRead(file.readIfChanged());
  const std::chrono::milliseconds interval = shared_->options.reload;
  if (interval.count() == 0) return;
  watch_.emplace(*executor, std::move(file), FileWatch::Options{.interval = interval},
                 [shared = shared_](const auto& content) { shared->onRead(content); });
}

std::shared_ptr<const HostsTable> HostsSource::Shared::newest() const {
  const std::lock_guard lock(mutex_);
  return table_;
}

// The Corefile's lines behind those of the file, if it could be read.
Result<std::shared_ptr<const HostsTable>> HostsSource::Shared::build(const std::string* content) const {
  const std::string_view texts[] = {content != nullptr ? std::string_view(*content) : std::string_view(), inline_text_};
  auto table = HostsTable::build(texts, table_options_);
  if (!table) return tl::unexpected(table.error());
  return freedOn<const HostsTable>(executor_, std::move(*table));
}

void HostsSource::Shared::onRead(const Result<std::optional<std::string>>& content) {
  auto table = content ? Result<std::shared_ptr<const HostsTable>>() : tl::unexpected(content.error());
  if (content && *content) table = build(&**content);
  if (table) {
    if (*table) {
      publish(*table);
      noteReload();
    }
    if (failing_) log_.info("{}: can be read again", options.file);
    failing_ = false;
    return;
  }
  warnOnce(table.error().message);
  if (newest()) return;
  table = build(nullptr);
  publish(table ? *table : std::make_shared<const HostsTable>(table_options_.seed));
}

void HostsSource::Shared::warnOnce(const std::string& what) {
  if (!failing_) log_.warning("{}: {}; {}", options.file, what, newest() ? "what it said last stays" : "left out");
  failing_ = true;
}

void HostsSource::Shared::noteReload() const {
  struct stat status;
  if (!reload_ || stat(options.file.c_str(), &status) != 0) return;
  constexpr double kNanosecond = 1e-9;
  const auto& changed = status.st_mtim;
  reload_->timestamp.set(static_cast<double>(changed.tv_sec) + static_cast<double>(changed.tv_nsec) * kNanosecond);
}

void HostsSource::Shared::publish(std::shared_ptr<const HostsTable> table) {
  // Lists of blocked names give one address to a million of them: nothing to be alarmed about.
  if (table->droppedCount() > 0) {
    log_.info("{}: {} records are left out: the others of their names fill a message", options.file,
              table->droppedCount());
  }
  counters_.entries.set(static_cast<double>(table->table().size()));
  {
    const std::lock_guard lock(mutex_);
    table_.swap(table);
  }
  // release: pairs with HostsSource::generation().
  generation.fetch_add(1, std::memory_order_release);
}

Hosts::Hosts(std::shared_ptr<const HostsSource> source)
    : source_(std::move(source)), generation_(source_->generation()) {
  table_ = source_->table();
}

// The generation is read before the table, so a table that is replaced in between is only fetched once more.
const HostsTable& Hosts::newestTable() const {
  const uint64_t generation = source_->generation();
  if (generation != generation_) [[unlikely]] {
    generation_ = generation;
    table_ = source_->table();
  }
  return *table_;
}

resolve::QueryOutcome Hosts::answer(const Query& query, size_t limit, uint16_t flags, const dns::AddressOrder& order,
                                    bool name_exists, uint32_t* wildcard) const {
  const HostsTable& table = newestTable();
  const Entry* entry = table.find(query.hash, query.name());
  const bool is_held = entry != nullptr;
  if (!is_held) entry = table.findWildcard(query.name());
  if (entry != nullptr) {
    const resolve::QueryOutcome outcome = answerHit(query, *entry, limit, flags, order);
    if (!is_held && wildcard != nullptr && !outcome.isNext()) *wildcard = markOf(*entry, table.table().seed());
    return outcome;
  }
  // Of a tree that is another one's, as the names below.
  if (table.isAboveHeld(query.name())) return resolve::QueryOutcome::nextOfExisting();
  const resolve::QueryOutcome outcome = answerMiss(query, limit, flags, name_exists);
  return outcome.isNext() && table.isAboveName(query.hash) ? resolve::QueryOutcome::nextOfAbove() : outcome;
}

resolve::QueryOutcome Hosts::answerHit(const Query& query, const Entry& entry, size_t limit, uint16_t flags,
                                  const dns::AddressOrder& order) const {
  // It is a zone that is this one name. The reverse name of an address that is held need not be within the zones.
  if (query.qtype == dns::code(RrType::kDs)) return resolve::QueryOutcome::nextOfExisting();
  ResponseBuilder response(query, limit);
  // RFC 8482 §4.1: of a name with several RRsets, ANY is answered with one.
  const bool any = query.qtype == dns::code(RrType::kAny);
  const bool found = entry.visitRrsets([&](const Entry::Rrset& rrset) {
    if (rrset.type != query.qtype && !any) return false;
    if (rrset.count > 1 && isAddress(rrset.type)) {
      addOrdered(response, rrset, order);
    } else {
      response.addAnswer(rrset.wire, rrset.count);
    }
    return true;
  });
  if (found) return resolve::QueryOutcome::answer(response.finish(Rcode::kNoError, flags | dns::kFlagAa));
  const HostsOptions& options = source_->options();
  const bool is_supported = isAddress(query.qtype) || query.qtype == dns::code(RrType::kPtr);
  if (options.fallthrough_unsupported && !is_supported && holds(options.fallthrough, query))
    return resolve::QueryOutcome::nextOfExisting();
  return answerNoData(query, limit, flags);
}

resolve::QueryOutcome Hosts::answerNoData(const Query& query, size_t limit, uint16_t flags) const {
  ResponseBuilder response(query, limit);
  response.addAuthority(dns::SyntheticSoa(dns::kHeaderSize, source_->options().ttl_seconds).span(), 1);
  return resolve::QueryOutcome::answer(response.finish(Rcode::kNoError, flags | dns::kFlagAa));
}

resolve::QueryOutcome Hosts::answerMiss(const Query& query, size_t limit, uint16_t flags,
                                        bool name_exists) const {
  const HostsOptions& options = source_->options();
  const bool in_zones = options.zones.empty() || holds(options.zones, query);
  if (!in_zones || name_exists || query.qtype == dns::code(RrType::kPtr) || holds(options.fallthrough, query))
    return resolve::QueryOutcome::next();
  return resolve::QueryOutcome::answer(ResponseBuilder(query, limit).finish(Rcode::kServFail, flags));
}

}  // namespace idetcd::directive
