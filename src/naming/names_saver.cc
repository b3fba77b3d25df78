#include "naming/names_saver.h"

#include "naming/saved_names.h"

namespace idetcd::naming {
namespace {

using namespace std::chrono_literals;

int64_t secondsOf(std::chrono::nanoseconds duration) {
  return std::chrono::duration_cast<std::chrono::seconds>(duration).count();
}

}  // namespace

NamesSaver::NamesSaver(runtime::Scheduler& scheduler, records::RecordStore& store, RecordSource& source,
                       FileCounters& counters, std::shared_ptr<Executor::Strand> strand, Options options, Logger log)
    : scheduler_(scheduler),
      store_(store),
      source_(source),
      counters_(counters),
      strand_(std::move(strand)),
      options_(std::move(options)),
      log_(std::move(log)) {}

void NamesSaver::restore(const std::function<void(int64_t)>& seen) {
  const auto put = [this, &seen](const SavedName& saved) {
    seen(saved.mod_revision);
    if (store_.size() < options_.max_names) store_.put(saved.name, saved.addresses, saved.mod_revision, saved.member);
  };
  const auto loaded = loadNames(options_.file, options_.pattern, put);
  if (!loaded) {
    counters_.saved_refused.add();
    log_.warning("{}", loaded.error().message);
    return;
  }
  if (!*loaded || (*loaded)->count == 0) return;
  source_.restored();
  store_.setFreshness(records::Freshness::kFromFile);
  const auto age_seconds = std::max<int64_t>(0, secondsOf(scheduler_.wallTime()) - (*loaded)->written_at_seconds);
  log_.info("{} names as they were known {} s ago, until etcd answers", (*loaded)->count, age_seconds);
}

runtime::Task<void> NamesSaver::saveRegularly(Lifetime& lifetime) {
  // For changes; so a node that has just learnt the names saves them soon.
  const std::chrono::nanoseconds look = std::min<std::chrono::nanoseconds>(1s, options_.interval);
  std::chrono::nanoseconds delay = look;
  while (true) {
    const bool go_on = co_await lifetime.pause(delay);
    if (!go_on) co_return;
    const bool due = hasUnsaved();
    delay = due ? options_.interval : look;
    if (due) save();
  }
}

bool NamesSaver::hasUnsaved() const {
  return !saving_ && source_.changes() != saved_changes_ &&
         store_.freshness(scheduler_.now()) == records::Freshness::kFresh;
}

// On the strand, which reads the table as the loops do.
void NamesSaver::save() {
  assert(!saving_);
  saving_ = true;
  saved_changes_ = source_.changes();
  const int64_t now = secondsOf(scheduler_.wallTime());
  strand_->submit([self = shared_from_this(), this, now] {
    const auto abandoned = [this] { return abandoned_.load(std::memory_order_relaxed); };
    const auto saved = saveNames(options_.file, options_.pattern, store_, now, abandoned);
    (saved ? counters_.saves : counters_.save_failures).add();
    if (!saved && !abandoned()) log_.warning("the names are not saved: {}", saved.error().message);
    scheduler_.post([self, this, failed = !saved] {
      saving_ = false;
      if (failed) saved_changes_ = ~uint64_t{0};
    });
  });
}

}  // namespace idetcd::naming
