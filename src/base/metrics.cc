#include "base/metrics.h"

#include <cstdio>
#include <cstdlib>
#include <numeric>

namespace idetcd::metrics {

namespace internal {

struct Series;

struct Instance {
  Instance(const Scope& scope, Registration::Read read_function, std::span<const std::atomic<uint64_t>> metric_values)
      : core(scope.core_), read(std::move(read_function)), values(metric_values) {}
  static const std::shared_ptr<Core>& coreOf(const Scope& scope) { return scope.core_; }
  static const auto& labelsOf(const Scope& scope) { return scope.labels_; }

  const std::shared_ptr<Core> core;  // for remove(): a metric may outlive every Registry
  const Registration::Read read;     // empty: there are `values`
  const std::span<const std::atomic<uint64_t>> values;
  Series* series = nullptr;
};

struct Series {
  Series(struct Members& family, std::vector<std::string> values) : members(family), label_values(std::move(values)) {}

  struct Members& members;
  const std::vector<std::string> label_values;
  std::vector<std::unique_ptr<Instance>> live;
  // Of counters and histograms that are gone, as Instance::values; of those by function, apart.
  std::vector<uint64_t> retired;
  double retired_by_function = 0;
};

struct Members {
  Family family;
  double units = 1;  // of a histogram, in one base unit
  std::map<std::vector<std::string>, Series> series;
};

[[noreturn]] void abortFor(const Family& family, const char* what) {
  std::fprintf(stderr, "metric %s: %s\n", family.name.c_str(), what);
  std::abort();
}

// Families and series are never removed, so that references to them stay good.
class Core {
 public:
  Instance* add(const Scope& scope, Family family, double units, std::unique_ptr<Instance> instance) {
    std::vector<std::string> label_values;
    for (const auto& [name, value] : Instance::labelsOf(scope)) {
      family.label_names.emplace_back(name);
      label_values.push_back(value);
    }
    const std::lock_guard lock(mutex_);
    const auto [known, is_new] = families_.try_emplace(family.name);
    Members& members = known->second;
    if (is_new) {
      members.family = std::move(family);
      members.units = units;
    } else {
      check(members, family, units);
    }
    auto series = members.series.find(label_values);
    if (series == members.series.end()) {
      series = members.series.try_emplace(label_values, members, label_values).first;
    }
    instance->series = &series->second;
    return series->second.live.emplace_back(std::move(instance)).get();
  }

  void remove(const Instance* instance) {
    std::unique_ptr<Instance> removed;  // destroyed without the lock
    const std::lock_guard lock(mutex_);
    Series& series = *instance->series;
    if (series.members.family.kind != Kind::kGauge) {
      series.retired.resize(instance->values.size());
      for (size_t i = 0; i < instance->values.size(); ++i) {
        series.retired[i] += instance->values[i].load(std::memory_order_relaxed);
      }
      if (instance->read) series.retired_by_function += instance->read();
    }
    const auto it = std::ranges::find(series.live, instance, &std::unique_ptr<Instance>::get);
    removed = std::move(*it);
    *it = std::move(series.live.back());
    series.live.pop_back();
  }

  void visit(const std::function<void(const Sample&)>& visitor) const {
    std::vector<const Members*> families;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [name, members] : families_) families.push_back(&members);
    }
    for (const Members* members : families) {
      for (const Reading& reading : read(*members)) {
        visitor({.family = members->family,
                 .label_values = reading.series->label_values,
                 .value = reading.value,
                 .sum = reading.sum,
                 .buckets = reading.buckets});
      }
    }
  }

 private:
  struct Reading {
    const Series* series;
    double value = 0;
    double sum = 0;
    std::vector<uint64_t> buckets;
  };

  static void check(const Members& members, const Family& family, double units) {
    const Family& known = members.family;
    if (known.kind != family.kind) abortFor(family, "registered as another kind");
    if (known.help != family.help) abortFor(family, "registered with another help");
    if (known.label_names != family.label_names) abortFor(family, "registered with other labels");
    if (known.bounds != family.bounds || members.units != units) abortFor(family, "registered with other bounds");
  }

  std::vector<Reading> read(const Members& members) const {
    const std::lock_guard lock(mutex_);
    std::vector<Reading> readings;
    readings.reserve(members.series.size());
    for (const auto& [values, series] : members.series) {
      const bool is_gauge = members.family.kind == Kind::kGauge;
      if (is_gauge && series.live.empty()) continue;
      readings.push_back(is_gauge ? readGauge(series) : readSum(members, series));
    }
    return readings;
  }

  static Reading readGauge(const Series& series) {
    Reading reading{.series = &series, .buckets = {}};
    for (const auto& instance : series.live) {
      reading.value += instance->read ? instance->read()
                                      : std::bit_cast<double>(instance->values[0].load(std::memory_order_relaxed));
    }
    return reading;
  }

  static Reading readSum(const Members& members, const Series& series) {
    Reading reading{.series = &series, .value = series.retired_by_function, .buckets = {}};
    std::vector<uint64_t> total = series.retired;
    for (const auto& instance : series.live) {
      total.resize(std::max(total.size(), instance->values.size()));
      for (size_t i = 0; i < instance->values.size(); ++i) {
        total[i] += instance->values[i].load(std::memory_order_relaxed);
      }
      if (instance->read) reading.value += instance->read();
    }
    if (members.family.kind == Kind::kHistogram) {
      reading.sum = static_cast<double>(total.back()) / members.units;
      total.pop_back();
      reading.buckets = total;
    }
    reading.value += static_cast<double>(std::accumulate(total.begin(), total.end(), uint64_t{0}));
    return reading;
  }

  mutable std::mutex mutex_;
  std::map<std::string, Members, std::less<>>
      families_;  // guarded by mutex_; what a Members says of its family is const
};

namespace {

Family familyOf(Kind kind, std::string_view name, Help help, std::vector<double> bounds = {}) {
  return {.kind = kind,
          .name = std::string(name),
          .help = std::string(help.text()),
          .label_names = {},
          .bounds = std::move(bounds)};
}

}  // namespace

Registration::Registration(const Scope& scope, Kind kind, std::string_view name, Help help,
                           std::span<const std::atomic<uint64_t>> values, std::vector<double> bounds, double units)
    : instance_(nullptr) {
  const auto& core = Instance::coreOf(scope);
  if (!core) return;
  instance_ = core->add(scope, familyOf(kind, name, help, std::move(bounds)), units,
                        std::make_unique<Instance>(scope, Read(), values));
}

Registration::Registration(const Scope& scope, Kind kind, std::string_view name, Help help, Read read)
    : instance_(nullptr) {
  const auto& core = Instance::coreOf(scope);
  if (!core) return;
  instance_ = core->add(scope, familyOf(kind, name, help), 1,
                        std::make_unique<Instance>(scope, std::move(read), std::span<const std::atomic<uint64_t>>()));
}

void Registration::remove() {
  const std::shared_ptr<Core> core = instance_->core;  // of which this may be the last metric
  core->remove(instance_);
}

}  // namespace internal

Scope Scope::with(LabelName name, std::string value) const {
  Scope scope = *this;
  if (core_) scope.labels_.emplace_back(name.text(), std::move(value));
  return scope;
}

Registry::Registry() : core_(std::make_shared<internal::Core>()) {}

Scope Registry::scope() const {
  Scope scope;
  scope.core_ = core_;
  return scope;
}

void Registry::visit(const std::function<void(const Sample&)>& visitor) const { core_->visit(visitor); }

namespace {

// By division, which is exact where the decimal fraction of the bound is: 250000 ns are the double 0.00025.
std::vector<double> inBaseUnits(std::span<const uint64_t> bounds, double units) {
  std::vector<double> made;
  for (const uint64_t bound : bounds) made.push_back(static_cast<double>(bound) / units);
  return made;
}

size_t checkedSize(std::span<const uint64_t> bounds, std::string_view name) {
  const bool ascending = std::ranges::adjacent_find(bounds, std::ranges::greater_equal()) == bounds.end();
  if (bounds.size() > Histogram::kMaxBounds || !ascending) {
    internal::abortFor({.name = std::string(name), .help = {}, .label_names = {}, .bounds = {}}, "its bounds");
  }
  return bounds.size();
}

}  // namespace

Histogram::Histogram(const Group& group, Name<Kind::kHistogram> name, Help help, std::span<const uint64_t> bounds,
                     double units)
    : size_(checkedSize(bounds, name.text())),
      registration_(group.scope(), Kind::kHistogram, name.text(), help, {values_.data(), size_ + 2},
                    inBaseUnits(bounds, units), units) {
  std::ranges::copy(bounds, bounds_.begin());
}

uint64_t Histogram::count() const {
  uint64_t sum = 0;
  for (size_t i = 0; i <= size_; ++i) sum += values_[i].load(std::memory_order_relaxed);
  return sum;
}

}  // namespace idetcd::metrics
