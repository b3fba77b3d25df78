#include "directive/prometheus/query_meters.h"

#include <numeric>

#include "dns/types.h"
#include "directive/prometheus/derived.h"
#include "directive/prometheus/families.h"

namespace idetcd::directive {

namespace {

using resolve::DurationHistogram;
using resolve::QueryMeter;
using resolve::SizeHistogram;

constexpr std::string_view kView;  // this server has no views

template <typename Counts>
std::vector<uint64_t> read(const Counts& counts) {
  std::vector<uint64_t> values;
  values.reserve(counts.size());
  for (const resolve::MeterCount& count : counts) values.push_back(count.value());
  return values;
}

bool isEmpty(std::span<const uint64_t> buckets) {
  return std::ranges::all_of(buckets, [](uint64_t count) { return count == 0; });
}

// One meter, into a snapshot. Only what has happened is shown, as by CoreDNS.
class MeterReader {
 public:
  MeterReader(Snapshot& snapshot, std::string server, std::string zone, const QueryMeter& meter)
      : snapshot_(snapshot), server_(std::move(server)), zone_(std::move(zone)), meter_(meter) {}

  void addAll(const std::vector<std::string>& directives) {
    addRequests();
    addResponses(directives);
    addSizes();
    addDurations();
    addVerdicts();
  }

 private:
  static constexpr std::array<std::string_view, QueryMeter::kTransports> kTransports{"udp", "tcp"};
  static constexpr std::array<std::string_view, QueryMeter::kFamilies> kFamilies{"1", "2"};

  Snapshot::LabelValues labels(std::initializer_list<std::string_view> more = {}) const {
    Snapshot::LabelValues values{server_, zone_, std::string(kView)};
    values.insert(values.end(), more.begin(), more.end());
    return values;
  }
  void add(const Exposed& family, const resolve::MeterCount& count, Snapshot::LabelValues values) {
    if (const uint64_t value = count.value(); value > 0) {
      snapshot_.add(family, std::move(values), static_cast<double>(value));
    }
  }

  void addRequests() {
    for (size_t transport = 0; transport < kTransports.size(); ++transport) {
      for (size_t family = 0; family < kFamilies.size(); ++family) {
        for (size_t type = 0; type < QueryMeter::kTypes.size(); ++type) {
          add(families::kRequests, meter_.requests[transport][family][type],
              labels({kTransports[transport], kFamilies[family], QueryMeter::kTypes[type]}));
        }
      }
    }
    add(families::kDoRequests, meter_.requests_with_do, labels());
  }

  void addResponses(const std::vector<std::string>& directives) {
    for (size_t by = 0; by < directives.size(); ++by) {
      for (size_t rcode = 0; rcode < QueryMeter::kRcodes; ++rcode) {
        add(families::kResponses, meter_.responses[by][rcode],
            labels({dns::kRcodeNames.toString(static_cast<uint16_t>(rcode)), directives[by]}));
      }
    }
  }

  void addSizes() {
    static const std::vector<double> kBounds(SizeHistogram::kBounds.begin(), SizeHistogram::kBounds.end());
    const auto add = [this](const Exposed& family, const SizeHistogram& sizes, std::string_view transport) {
      const auto buckets = read(sizes.buckets_);
      if (isEmpty(buckets)) return;
      snapshot_.add(family, labels({transport}), kBounds, buckets, static_cast<double>(sizes.sum_.value()));
    };
    for (size_t transport = 0; transport < kTransports.size(); ++transport) {
      add(families::kRequestSize, meter_.request_sizes[transport], kTransports[transport]);
      add(families::kResponseSize, meter_.response_sizes[transport], kTransports[transport]);
    }
  }

  // The histogram of CoreDNS has the sum of the finer buckets as its first one; ours has the rest as its last one.
  void addDurations() {
    const auto buckets = read(meter_.durations.buckets_);
    if (isEmpty(buckets)) return;
    const auto seconds = [](std::span<const uint64_t> nanoseconds) {
      std::vector<double> bounds;
      for (const uint64_t bound : nanoseconds) bounds.push_back(static_cast<double>(bound) / 1e9);
      return bounds;
    };
    constexpr size_t kFirst = DurationHistogram::kFine;
    constexpr std::span<const uint64_t> kBounds = DurationHistogram::kBounds;
    static const std::vector<double> kCoarse = seconds(kBounds.subspan(kFirst));
    static const std::vector<double> kFine = seconds(kBounds.first(kFirst + 1));
    const double sum = static_cast<double>(meter_.durations.sum_.value()) / 1e9;
    std::vector<uint64_t> coarse(buckets.begin() + kFirst, buckets.end());
    coarse[0] = std::accumulate(buckets.begin(), buckets.begin() + kFirst + 1, uint64_t{0});
    std::vector<uint64_t> fine(buckets.begin(), buckets.begin() + kFirst + 1);
    fine.push_back(std::accumulate(buckets.begin() + kFirst + 1, buckets.end(), uint64_t{0}));
    snapshot_.add(families::kDuration, labels(), kCoarse, coarse, sum);
    snapshot_.add(families::kShortDuration, labels(), kFine, fine, sum);
  }

  void addVerdicts() {
    using resolve::Gate;
    const auto count = [this](Gate::AclVerdict verdict) -> const auto& {
      return meter_.verdicts[static_cast<size_t>(verdict)];
    };
    add(families::kAllowed, count(Gate::AclVerdict::kAllow), {server_, std::string(kView)});
    add(families::kFiltered, count(Gate::AclVerdict::kFilter), labels());
    add(families::kBlocked, count(Gate::AclVerdict::kBlock), labels());
    add(families::kDropped, count(Gate::AclVerdict::kDrop), labels());
  }

  Snapshot& snapshot_;
  const std::string server_;
  const std::string zone_;
  const QueryMeter& meter_;
};

}  // namespace

std::shared_ptr<QueryMeter> QueryMeters::meterOf(const std::string& server, const std::string& zone, size_t worker) {
  const std::lock_guard lock(mutex_);
  auto& meter = meters_[{server, zone, worker}];
  if (!meter) meter = std::make_shared<QueryMeter>();
  return meter;
}

void QueryMeters::enable(const void* owner, std::vector<Enabled> directives) {
  const std::lock_guard lock(mutex_);
  enabled_[owner] = std::move(directives);
}

void QueryMeters::disable(const void* owner) {
  const std::lock_guard lock(mutex_);
  enabled_.erase(owner);
}

void QueryMeters::addQueries(Snapshot& snapshot) const {
  const auto directives = process_.names.all();
  const std::lock_guard lock(mutex_);
  for (const auto& [key, meter] : meters_) {
    const auto& [server, zone, worker] = key;
    MeterReader(snapshot, server, zone, *meter).addAll(directives);
  }
  for (const auto& [owner, all] : enabled_) {
    for (const Enabled& enabled : all) {
      snapshot.family(families::kPluginEnabled)
          .series[{enabled.server, enabled.zone, std::string(kView), enabled.directive}] = {.value = 1, .buckets = {}};
    }
  }
}

Snapshot QueryMeters::snapshot() const {
  Snapshot snapshot;
  process_.metrics.visit([&snapshot](const metrics::Sample& sample) { snapshot.add(sample); });
  snapshot.add(families::kBuildInfo, {IDETCD_VERSION, "", ""}, 1);
  snapshot.add(families::kPanics, {}, 0);
  addQueries(snapshot);
  addDerived(snapshot);
  return snapshot;
}

}  // namespace idetcd::directive
