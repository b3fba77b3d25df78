#include "directive/file/zone_loader.h"

#include <ctime>

#include "zones/zone_journal.h"

namespace idetcd::directive {

namespace {

// Two writes within one tick of the coarsest clocks of file systems have the same stamp (base/file_watch.cc).
constexpr time_t kCoarsestTickSeconds = 2;

bool haveChanged(const std::vector<zones::ReadFile>& files) {
  return std::ranges::any_of(files, [](const zones::ReadFile& file) { return FileStamp::of(file.path) != file.stamp; });
}

bool haveSameContent(const std::vector<zones::ReadFile>& a, const std::vector<zones::ReadFile>& b) {
  return std::ranges::equal(a, b, {}, &zones::ReadFile::content_hash, &zones::ReadFile::content_hash);
}

}  // namespace

bool areSettled(const std::vector<zones::ReadFile>& files, time_t now) {
  return std::ranges::all_of(files, [now](const zones::ReadFile& file) {
    return !file.stamp || (file.was_read && file.stamp->changedAtSeconds() + kCoarsestTickSeconds < now);
  });
}

std::shared_ptr<const zones::Zone> KeptZones::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = zones_.find(key);
  return found != zones_.end() ? found->second.lock() : nullptr;
}

void KeptZones::put(const std::string& key, const std::shared_ptr<const zones::Zone>& zone) {
  const std::lock_guard lock(mutex_);
  std::erase_if(zones_, [](const auto& kept) { return kept.second.expired(); });
  zones_[key] = zone;
}

struct ZoneLoader::State : std::enable_shared_from_this<State> {
  State(Options loader_options, Context loader_context)
      : options(std::move(loader_options)),
        context(std::move(loader_context)),
        strand(context.executor->makeStrand()),
        counters(context.metrics.with("zone", options.origin.toString())) {}

  std::string key() const { return options.origin.toString() + " " + options.path; }

  void putZone() {
    const std::lock_guard lock(mutex);
    if (ended) return;
    context.set->put({options.origin, options.fallthrough, zone});
    if (zone && context.kept != nullptr) context.kept->put(key(), zone);
  }

  Result<std::unique_ptr<zones::Zone>> read() {
    files.clear();
    zones::ZoneBuilder builder(options.origin, context.set->seed());
    if (auto read = zones::readZoneFile(options.path, builder, files); !read) return tl::unexpected(read.error());
    return builder.build();
  }

  void setZone(std::shared_ptr<const zones::Zone> new_zone) {
    zone = std::move(new_zone);
    counters.names.set(static_cast<double>(zone->names()));
    counters.serial.set(zone->serial());
    putZone();
  }

  // Null: there is none.
  std::shared_ptr<const zones::Zone> keptZone() const { return context.kept != nullptr ? context.kept->find(key()) : nullptr; }

  void use(std::unique_ptr<zones::Zone> read_zone) {
    const auto before = zone ? zone : keptZone();
    if (context.keeps_changes && before) zones::keepChanges(*read_zone, before);
    setZone(freedOn<const zones::Zone>(context.executor, std::move(read_zone)));
    counters.loads.add();
    context.log.info("{}: {} with serial {}: {} records of {} names", options.path, options.origin.toString(),
                     zone->serial(), zone->recordCount(), zone->names());
    if (zone->outOfZoneCount() > 0)
      context.log.warning("{}: {} records are outside of {} and left out", options.path, zone->outOfZoneCount(),
                          options.origin.toString());
    if (zone->apex().find(dns::code(dns::RrType::kNs)).count == 0)
      context.log.warning("{}: {} has no NS record", options.path, options.origin.toString());
  }

  void look() {
    if (!settled || haveChanged(files)) readAgain();
    again();
  }

  void readAgain() {
    const bool was_settled = settled;
    std::vector<zones::ReadFile> before = files;
    const time_t now = time(nullptr);
    auto found = read();
    if (haveChanged(files)) {     // somebody writes it at this moment
      files = std::move(before);  // what comes to nothing is not remembered
      return;
    }
    settled = areSettled(files, now);
    if (haveSameContent(files, before)) return;
    if (!found) return warnOnce(found.error().message);
    warned.clear();
    // A file that was half written when it was read may have had its serial already.
    if (!zone || (*found)->serial() != zone->serial() || !was_settled) return use(std::move(*found));
    context.log.info("{}: changed, but {} has the same serial {}, and stays as it is", options.path,
                     options.origin.toString(), zone->serial());
  }

  void warnOnce(const std::string& what) {
    counters.failures.add();
    if (what != warned)
      context.log.warning("{}; {}", what, zone ? "the zone stays as it is" : "the zone cannot be answered for");
    warned = what;
  }

  void again() {
    strand->submitAfter(options.reload, [seen = weak_from_this()] {
      if (const auto state = seen.lock()) state->look();
    });
  }

  const Options options;
  const Context context;
  const std::shared_ptr<Executor::Strand> strand;
  ZoneCounters counters;
  std::vector<zones::ReadFile> files;  // the last reading's
  bool settled = false;                // they need no reading until their stamps change
  std::string warned;
  std::shared_ptr<const zones::Zone> zone;  // in use
  std::mutex mutex;                         // guards `ended`
  bool ended = false;
};

ZoneLoader::ZoneLoader(Options options, Context context)
    : state_(std::make_shared<State>(std::move(options), std::move(context))) {}

ZoneLoader::~ZoneLoader() {
  const std::lock_guard lock(state_->mutex);
  state_->ended = true;
}

Result<void> ZoneLoader::load() {
  const time_t now = time(nullptr);
  auto zone = state_->read();
  state_->settled = areSettled(state_->files, now) && !haveChanged(state_->files);
  if (zone) {
    state_->use(std::move(*zone));
  } else {
    state_->counters.failures.add();
    state_->warned = zone.error().message;
    auto kept = state_->keptZone();
    uses_kept_ = kept != nullptr;
    if (kept) {
      state_->setZone(std::move(kept));
    } else if (state_->options.is_served_empty) {
      state_->putZone();
    }
  }
  if (state_->options.reload.count() > 0) state_->again();
  return zone ? Result<void>() : tl::unexpected(zone.error());
}

}  // namespace idetcd::directive
