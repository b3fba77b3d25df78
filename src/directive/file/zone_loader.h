// Keeps one zone of a ZoneSet as its file has it: read at first by load(), then again when the file, or one that it includes,
// has changed and the SOA has another serial. A file that cannot be read, or holds no zone, leaves the last zone in use: one
// warning, and again when the file has changed, or can be read. A file that changes while it is read is read later. load() before the loops,
// the rest on the executor.
#pragma once

#include "base/executor.h"
#include "base/log.h"
#include "base/metrics.h"
#include "directive/file/zone_set.h"
#include "resolve/directive.h"
#include "zones/zone_file.h"

namespace idetcd::directive {

// Of one zone. Written by the thread that reads the file.
struct ZoneCounters : metrics::Group {
  using Group::Group;

  metrics::Counter loads{*this, "idetcd_zone_loads_total", "Zones that were read from their files and came into use."};
  metrics::Counter failures{*this, "idetcd_zone_load_failures_total", "Readings of zone files that failed."};
  metrics::Gauge names{*this, "idetcd_zone_names", "Names of the zone."};
  metrics::Gauge serial{*this, "idetcd_zone_serial", "Serial of the zone that is in use."};
};

// The zones that are in use, for the next configuration of the process. Any thread.
class KeptZones final : public resolve::ProcessState {
 public:
  explicit KeptZones(resolve::Process&) {}

  // `key`: of a zone and its file. Null: there is none.
  std::shared_ptr<const zones::Zone> find(const std::string& key) const;
  void put(const std::string& key, const std::shared_ptr<const zones::Zone>& zone);

 private:
  mutable std::mutex mutex_;  // guards zones_
  std::map<std::string, std::weak_ptr<const zones::Zone>> zones_;
};

// Whether each is not there, or was read and written so long before `now` that a later write shows in its stamp. What is there
// and could not be read may be read the next time, with the same stamp.
bool areSettled(const std::vector<zones::ReadFile>& files, time_t now);

class ZoneLoader {
 public:
  struct Options {
    std::string path;
    dns::Name origin;
    std::vector<dns::Name> fallthrough{};
    std::chrono::milliseconds reload{60'000};  // 0: the file is read once
    bool is_served_empty = true;               // SERVFAIL while there is no zone, else the next directive answers
  };
  struct Context {
    std::shared_ptr<ZoneSet> set;
    std::shared_ptr<Executor> executor;
    Logger log;
    metrics::Scope metrics{};
    KeptZones* kept = nullptr;  // lives as long as the process; null: nothing is kept
    bool keeps_changes = false;  // for those to whom the zone is transferred
  };

  ZoneLoader(Options options, Context context);
  // Does not wait for a reading that is under way, which changes the set no more.
  ~ZoneLoader();
  ZoneLoader(const ZoneLoader&) = delete;
  ZoneLoader& operator=(const ZoneLoader&) = delete;

  // Reads the file, and begins to watch it. kNotFound: there is no such file. If that fails, the zone that another loader
  // had of this file is in use, if there was one. Once.
  Result<void> load();
  // After load(): whether it failed, and the zone of before is in use.
  bool usesKept() const { return uses_kept_; }

 private:
  struct State;
  const std::shared_ptr<State> state_;
  bool uses_kept_ = false;
};

}  // namespace idetcd::directive
