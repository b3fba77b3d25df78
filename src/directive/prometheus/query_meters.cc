#include "directive/prometheus/query_meters.h"

#include <cmath>
#include <iterator>
#include <numeric>

#include "dns/types.h"

namespace idetcd::directive {

namespace {

using metrics::Kind;
using metrics::LabelName;
using resolve::DurationHistogram;
using resolve::QueryMeter;
using resolve::SizeHistogram;

void addSeries(Snapshot::Series& to, const Snapshot::Series& more) {
  to.value += more.value;
  to.sum += more.sum;
  if (to.buckets.size() < more.buckets.size()) to.buckets.resize(more.buckets.size());
  for (size_t i = 0; i < more.buckets.size(); ++i) to.buckets[i] += more.buckets[i];
}

std::string_view typeOf(Kind kind) {
  switch (kind) {
    case Kind::kCounter:
      return "counter";
    case Kind::kGauge:
      return "gauge";
    case Kind::kHistogram:
      break;
  }
  return "histogram";
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  constexpr double kLargestExact = 9007199254740992;  // above it not every integer is a double
  if (value == std::trunc(value) && std::abs(value) < kLargestExact) {
    return fmt::format("{}", static_cast<int64_t>(value));
  }
  return fmt::format("{}", value);
}

std::string escaped(std::string_view text, bool is_label) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\\' || (is_label && c == '"')) {
      out += '\\';
      out += c;
    } else {
      out += c;
    }
  }
  return out;
}

// One family as text.
class FamilyWriter {
 public:
  FamilyWriter(std::string& out, std::string_view name, const Snapshot::Family& family)
      : out_(out), name_(name), family_(family) {}

  void write() {
    fmt::format_to(std::back_inserter(out_), "# HELP {} {}\n# TYPE {} {}\n", name_, escaped(family_.help, false), name_,
                   typeOf(family_.kind));
    for (const auto& [labels, series] : family_.series) {
      if (family_.kind == Kind::kHistogram) {
        writeHistogram(labels, series);
      } else {
        writeSample("", labels, {}, number(series.value));
      }
    }
  }

 private:
  void writeHistogram(const Snapshot::LabelValues& labels, const Snapshot::Series& series) {
    uint64_t below = 0;
    for (size_t i = 0; i < series.buckets.size(); ++i) {
      below += series.buckets[i];
      const bool last = i == family_.bounds.size();
      writeSample("_bucket", labels, last ? "+Inf" : number(family_.bounds[i]), fmt::format("{}", below));
    }
    writeSample("_sum", labels, {}, number(series.sum));
    writeSample("_count", labels, {}, fmt::format("{}", below));
  }

  // `le`: empty where it is no bucket.
  void writeSample(std::string_view suffix, const Snapshot::LabelValues& values, std::string_view le,
                   std::string_view value) {
    out_ += name_;
    out_ += suffix;
    char separator = '{';
    const auto label = [&](std::string_view name, std::string_view text) {
      fmt::format_to(std::back_inserter(out_), "{}{}=\"{}\"", separator, name, escaped(text, true));
      separator = ',';
    };
    for (size_t i = 0; i < values.size(); ++i) label(family_.label_names[i], values[i]);
    if (!le.empty()) label("le", le);
    if (separator == ',') out_ += '}';
    fmt::format_to(std::back_inserter(out_), " {}\n", value);
  }

  std::string& out_;
  const std::string_view name_;
  const Snapshot::Family& family_;
};

// The families that the directive adds to those of the registry: what is counted of queries, and what CoreDNS shows under
// a second name.
namespace families {

constexpr LabelName kOfBuild[]{"version", "revision", "goversion"};
constexpr LabelName kOfServer[]{"server", "view"};
constexpr LabelName kOfZone[]{"server", "zone", "view"};
constexpr LabelName kOfZoneAndName[]{"server", "zone", "view", "name"};
constexpr LabelName kOfZoneAndProto[]{"server", "zone", "view", "proto"};
constexpr LabelName kOfRequest[]{"server", "zone", "view", "proto", "family", "type"};
constexpr LabelName kOfResponse[]{"server", "zone", "view", "rcode", "plugin"};
constexpr LabelName kOfCache[]{"server", "zones", "view"};
constexpr LabelName kOfUpstream[]{"to"};
constexpr LabelName kOfUpstreamAndRcode[]{"to", "rcode"};
constexpr LabelName kOfUpstreamAndProto[]{"to", "proto"};

// Of the process.
constexpr Exposed kBuildInfo{"coredns_build_info", Kind::kGauge, "The version of the server.", kOfBuild};
constexpr Exposed kPanics{"coredns_panics_total", Kind::kCounter,
                          "Queries that failed by a defect: 0, for a defect ends the process."};
constexpr Exposed kPluginEnabled{"coredns_plugin_enabled", Kind::kGauge, "The directives of a zone.", kOfZoneAndName};

// Of queries (resolve::QueryMeter).
constexpr Exposed kRequests{"coredns_dns_requests_total", Kind::kCounter, "Queries.", kOfRequest};
constexpr Exposed kDoRequests{"coredns_dns_do_requests_total", Kind::kCounter, "Queries with the DO bit.", kOfZone};
constexpr Exposed kRequestSize{"coredns_dns_request_size_bytes", Kind::kHistogram, "The sizes of queries.",
                               kOfZoneAndProto};
constexpr Exposed kResponses{"coredns_dns_responses_total", Kind::kCounter,
                             "Responses, by the directive that has answered.", kOfResponse};
constexpr Exposed kResponseSize{"coredns_dns_response_size_bytes", Kind::kHistogram, "The sizes of responses.",
                                kOfZoneAndProto};
constexpr Exposed kDuration{"coredns_dns_request_duration_seconds", Kind::kHistogram,
                            "The time from a query to its response.", kOfZone};
constexpr Exposed kShortDuration{"idetcd_dns_request_duration_seconds", Kind::kHistogram,
                                 "The time from a query to its response, where that is short.", kOfZone};
constexpr Exposed kAllowed{"coredns_acl_allowed_requests_total", Kind::kCounter, "Queries that acl has let through.",
                           kOfServer};
constexpr Exposed kFiltered{"coredns_acl_filtered_requests_total", Kind::kCounter,
                            "Queries to which acl has answered without records.", kOfZone};
constexpr Exposed kBlocked{"coredns_acl_blocked_requests_total", Kind::kCounter, "Queries that acl has refused.",
                           kOfZone};
constexpr Exposed kDropped{"coredns_acl_dropped_requests_total", Kind::kCounter,
                           "Queries that acl has left without an answer.", kOfZone};

// Derived from others (addDerived()).
constexpr Exposed kCacheRequests{"coredns_cache_requests_total", Kind::kCounter,
                                 "Queries that the cache was asked for.", kOfCache};
constexpr Exposed kForwardRequests{"coredns_forward_requests_total", Kind::kCounter,
                                   "Deprecated: see coredns_proxy_request_duration_seconds_count.", kOfUpstream};
constexpr Exposed kForwardResponses{"coredns_forward_responses_total", Kind::kCounter,
                                    "Deprecated: see coredns_proxy_request_duration_seconds_count.",
                                    kOfUpstreamAndRcode};
constexpr Exposed kForwardDuration{"coredns_forward_request_duration_seconds", Kind::kHistogram,
                                   "Deprecated: see coredns_proxy_request_duration_seconds.", kOfUpstreamAndRcode};
constexpr Exposed kForwardFailures{"coredns_forward_healthcheck_failures_total", Kind::kCounter,
                                   "Deprecated: see coredns_proxy_healthcheck_failures_total.", kOfUpstream};
constexpr Exposed kForwardHits{"coredns_forward_conn_cache_hits_total", Kind::kCounter,
                               "Deprecated: see coredns_proxy_conn_cache_hits_total.", kOfUpstreamAndProto};
constexpr Exposed kForwardMisses{"coredns_forward_conn_cache_misses_total", Kind::kCounter,
                                 "Deprecated: see coredns_proxy_conn_cache_misses_total.", kOfUpstreamAndProto};

}  // namespace families

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

// The series of `from`, summed over the labels that `to` does not have. Of a histogram a counter has the observations.
void regroup(Snapshot& snapshot, std::string_view from, const Exposed& to) {
  const Snapshot::Family* source = snapshot.find(from);
  if (source == nullptr) return;
  std::vector<size_t> places;
  for (const LabelName& label : to.labels) {
    const auto place = std::ranges::find(source->label_names, label.text());
    places.push_back(static_cast<size_t>(place - source->label_names.begin()));
  }
  for (const auto& [labels, series] : source->series) {
    Snapshot::LabelValues values;
    for (const size_t place : places) values.push_back(labels.at(place));
    if (to.kind == Kind::kHistogram) {
      snapshot.add(to, std::move(values), source->bounds, series.buckets, series.sum);
    } else {
      snapshot.add(to, std::move(values), series.value);
    }
  }
}

}  // namespace

void Snapshot::add(const metrics::Sample& sample) {
  Family& family = families_[sample.family.name];
  if (family.series.empty()) {
    family.kind = sample.family.kind;
    family.help = sample.family.help;
    family.label_names = sample.family.label_names;
    family.bounds = sample.family.bounds;
  }
  addSeries(family.series[{sample.label_values.begin(), sample.label_values.end()}],
            {.value = sample.value, .sum = sample.sum, .buckets = {sample.buckets.begin(), sample.buckets.end()}});
}

Snapshot::Family& Snapshot::family(const Exposed& exposed) {
  const auto [known, is_new] = families_.try_emplace(std::string(exposed.name));
  Family& family = known->second;
  if (is_new) {
    family.kind = exposed.kind;
    family.help = exposed.help.text();
    for (const metrics::LabelName& label : exposed.labels) family.label_names.emplace_back(label.text());
  }
  return family;
}

void Snapshot::add(const Exposed& exposed, LabelValues labels, double value) {
  addSeries(family(exposed).series[std::move(labels)], {.value = value, .buckets = {}});
}

void Snapshot::add(const Exposed& exposed, LabelValues labels, const std::vector<double>& bounds,
                   std::span<const uint64_t> buckets, double sum) {
  Family& to = family(exposed);
  if (to.bounds.empty()) to.bounds = bounds;
  Series series{.sum = sum, .buckets = {buckets.begin(), buckets.end()}};
  for (const uint64_t count : buckets) series.value += static_cast<double>(count);
  addSeries(to.series[std::move(labels)], series);
}

const Snapshot::Family* Snapshot::find(std::string_view name) const {
  const auto found = families_.find(name);
  return found != families_.end() ? &found->second : nullptr;
}

std::string Snapshot::text() const {
  std::string out;
  for (const auto& [name, family] : families_) FamilyWriter(out, name, family).write();
  return out;
}

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

void addDerived(Snapshot& snapshot) {
  constexpr std::string_view kProxyDuration = "coredns_proxy_request_duration_seconds";
  regroup(snapshot, kProxyDuration, families::kForwardRequests);
  regroup(snapshot, kProxyDuration, families::kForwardResponses);
  regroup(snapshot, kProxyDuration, families::kForwardDuration);
  regroup(snapshot, "coredns_proxy_healthcheck_failures_total", families::kForwardFailures);
  regroup(snapshot, "coredns_proxy_conn_cache_hits_total", families::kForwardHits);
  regroup(snapshot, "coredns_proxy_conn_cache_misses_total", families::kForwardMisses);
  regroup(snapshot, "coredns_cache_hits_total", families::kCacheRequests);
  regroup(snapshot, "coredns_cache_misses_total", families::kCacheRequests);
}

}  // namespace idetcd::directive
