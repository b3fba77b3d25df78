#include "resolve/hosts.h"

#include <algorithm>

#include <fmt/format.h>

#include "dns/response.h"
#include "resolve/nobody_soa.h"

namespace idetcd::resolve {

using dns::Query;
using dns::Rcode;
using dns::ResponseBuilder;
using dns::RrType;
using records::Entry;

namespace {

// Who changes a file truncates it first and fills it then. A change is read this long after it was noticed.
constexpr std::chrono::milliseconds kSettleTime{20};

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

// Address records are all of one size.
void addRotated(ResponseBuilder& response, const Entry::Rrset& rrset, uint32_t rotation) {
  const auto first = static_cast<uint16_t>(rotation % rrset.count);
  const size_t split = rrset.wire.size() / rrset.count * first;
  response.addAnswer(rrset.wire.subspan(split), static_cast<uint16_t>(rrset.count - first));
  response.addAnswer(rrset.wire.first(split), first);
}

}  // namespace

HostsSource::HostsSource(HostsOptions options, HashSeed seed, Logger log)
    : options_(std::move(options)),
      table_options_{
          .zones = options_.zones, .ttl_seconds = options_.ttl_seconds, .reverse = !options_.no_reverse, .seed = seed},
      inline_text_(join(options_.inline_lines)),
      log_(std::move(log)),
      file_(options_.file) {
  readFile();
  if (!table_) {
    const std::string_view texts[] = {inline_text_};
    auto table = HostsTable::build(texts, table_options_);
    const std::string_view nothing[] = {""};
    publish(table ? *table : *HostsTable::build(nothing, table_options_));
  }
  if (options_.reload.count() > 0) thread_ = std::thread([this] { watch(); });
}

HostsSource::~HostsSource() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<const HostsTable> HostsSource::table() const {
  const std::lock_guard lock(mutex_);
  return table_;
}

void HostsSource::watch() {
  const auto stopped = [this](std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return wake_.wait_for(lock, time, [this] { return stopping_; });
  };
  while (!stopped(options_.reload)) {
    if (!file_.mayHaveChanged()) continue;
    if (stopped(kSettleTime)) return;
    readFile();
  }
}

void HostsSource::readFile() {
  const auto content = file_.readIfChanged();
  if (!content) return warnOnce(content.error().message);
  if (*content) {
    const std::string_view texts[] = {**content, inline_text_};
    const auto table = HostsTable::build(texts, table_options_);
    if (!table) return warnOnce(table.error().message);
    publish(*table);
  }
  if (failing_) log_.info("{}: can be read again", file_.path());
  failing_ = false;
}

void HostsSource::warnOnce(const std::string& what) {
  if (!failing_) log_.warning("{}: {}; {}", file_.path(), what, table_ ? "what it said last stays" : "left out");
  failing_ = true;
}

void HostsSource::publish(std::shared_ptr<const HostsTable> table) {
  // Lists of blocked names give one address to a million of them: nothing to be alarmed about.
  if (table->droppedCount() > 0) {
    log_.info("{}: {} records are left out: the others of their names fill a message", file_.path(),
              table->droppedCount());
  }
  std::shared_ptr<const HostsTable> old;  // freed outside of the lock
  {
    const std::lock_guard lock(mutex_);
    old = std::exchange(table_, std::move(table));
  }
  // release: pairs with generation().
  generation_.fetch_add(1, std::memory_order_release);
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

Outcome Hosts::answer(const Query& query, size_t limit, uint16_t flags, uint32_t rotation) const {
  const Entry* entry = newestTable().find(query.hash, query.name());
  return entry != nullptr ? answerHit(query, *entry, limit, flags, rotation) : answerMiss(query, limit, flags);
}

Outcome Hosts::answerHit(const Query& query, const Entry& entry, size_t limit, uint16_t flags,
                         uint32_t rotation) const {
  const HostsOptions& options = source_->options();
  // The reverse name of an address that is held need not be within the zones; only its PTR is ours then.
  const bool in_zones = options.zones.empty() || holds(options.zones, query);
  if (!in_zones && query.qtype != dns::code(RrType::kPtr)) return Outcome::next();
  ResponseBuilder response(query, limit);
  // RFC 8482 §4.1: of a name with several RRsets, ANY is answered with one.
  const bool any = query.qtype == dns::code(RrType::kAny);
  const bool found = entry.visitRrsets([&](const Entry::Rrset& rrset) {
    if (rrset.type != query.qtype && !any) return false;
    if (rrset.count > 1 && isAddress(rrset.type)) {
      addRotated(response, rrset, rotation);
    } else {
      response.addAnswer(rrset.wire, rrset.count);
    }
    return true;
  });
  // A zone that is this one name.
  if (!found) response.addAuthority(NobodySoa(dns::kHeaderSize, options.ttl_seconds).span(), 1);
  return Outcome::answer(response.finish(Rcode::kNoError, flags | dns::kFlagAa));
}

Outcome Hosts::answerMiss(const Query& query, size_t limit, uint16_t flags) const {
  const HostsOptions& options = source_->options();
  const bool in_zones = options.zones.empty() || holds(options.zones, query);
  if (!in_zones || query.qtype == dns::code(RrType::kPtr) || holds(options.fallthrough, query)) return Outcome::next();
  return Outcome::answer(ResponseBuilder(query, limit).finish(Rcode::kServFail, flags));
}

}  // namespace idetcd::resolve
