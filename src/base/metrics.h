// Counters, gauges and histograms: written by the thread that does the work, read by any other through one visitor.
//
//   struct Counters : metrics::Group {
//     using Group::Group;
//     metrics::Counter received{*this, "idetcd_udp_received_total", "Datagrams that were received."};
//   };
//   Counters counters(registry.scope().with("worker", "0"));
//   counters.received.add(1);
//
// The registry knows a metric while it lives. Metrics of one family with the same labels are one series, their sum. A
// counter's or histogram's count stays in its series when it goes (a reload sets nothing back); a gauge goes with its
// owner. A write is a load, an addition and a store, relaxed, in a cache line of its Group; the numbers of one visit
// are not of one instant. Names are Prometheus's, or do not compile. Two metrics of one family that differ in kind,
// help, bounds or label names abort.
#pragma once

#include <bit>

#include "base/std.h"

namespace idetcd::metrics {

enum class Kind : uint8_t { kCounter, kGauge, kHistogram };

namespace internal {

constexpr bool isName(std::string_view text, bool with_colon) {
  if (text.empty() || (text.front() >= '0' && text.front() <= '9')) return false;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    if (!letter && !(c >= '0' && c <= '9') && !(with_colon && c == ':')) return false;
  }
  return true;
}

// Suffixes that are the exposition format's, and units that are not base units.
constexpr bool endsBadly(std::string_view name) {
  constexpr std::array<std::string_view, 14> kBad{
      "_sum",          "_count",       "_bucket",  "_ms",    "_us",        "_ns",        "_milliseconds",
      "_microseconds", "_nanoseconds", "_minutes", "_hours", "_kilobytes", "_megabytes", "_octets"};
  for (const std::string_view bad : kBad) {
    if (name.ends_with(bad)) return true;
  }
  return false;
}

class Core;
struct Instance;

}  // namespace internal

// By the rules of Prometheus; checked by the compiler.
constexpr bool isValidName(Kind kind, std::string_view name) {
  constexpr std::string_view kTotal = "_total";
  if (!internal::isName(name, true) || name.ends_with(kTotal) != (kind == Kind::kCounter)) return false;
  if (kind == Kind::kCounter) name.remove_suffix(kTotal.size());
  return !internal::endsBadly(name);
}
constexpr bool isValidLabelName(std::string_view name) {
  return internal::isName(name, false) && !name.starts_with("__") && name != "le" && name != "quantile";
}

template <Kind kind>
class Name {
 public:
  template <size_t size>
  consteval Name(const char (&text)[size]) : text_(text, size - 1) {  // NOLINT: written as a literal
    if (!isValidName(kind, text_)) throw "not a name for this kind of metric";
  }
  constexpr std::string_view text() const { return text_; }

 private:
  std::string_view text_;
};

class LabelName {
 public:
  template <size_t size>
  consteval LabelName(const char (&text)[size]) : text_(text, size - 1) {  // NOLINT: written as a literal
    if (!isValidLabelName(text_)) throw "not a name for a label";
  }
  constexpr std::string_view text() const { return text_; }

 private:
  std::string_view text_;
};

// The purpose of a metric, as users read it: a sentence.
class Help {
 public:
  template <size_t size>
  consteval Help(const char (&text)[size]) : text_(text, size - 1) {  // NOLINT: written as a literal
    if (size < 4 || text[size - 2] != '.') throw "not a sentence";
  }
  constexpr std::string_view text() const { return text_; }

 private:
  std::string_view text_;
};

// Where metrics are registered, and the labels that they have there. The default is nowhere: what is written can be
// read from the metric itself. Cheap to copy; keeps the registry alive.
class Scope {
 public:
  Scope() = default;
  Scope with(LabelName name, std::string value) const;

 private:
  friend class Registry;
  friend struct internal::Instance;
  std::shared_ptr<internal::Core> core_;
  std::vector<std::pair<std::string_view, std::string>> labels_;
};

struct Family {
  Kind kind = Kind::kCounter;
  std::string name;
  std::string help;
  std::vector<std::string> label_names;
  std::vector<double> bounds;  // of a histogram, ascending, in base units; the last bucket has no bound
};

// One series. Valid during the call that it is passed to.
struct Sample {
  const Family& family;
  std::span<const std::string> label_values;  // beside family.label_names
  double value = 0;                           // of a counter or gauge; of a histogram, the number of observations
  double sum = 0;                             // of a histogram, of all observations, in base units
  std::span<const uint64_t> buckets;  // of a histogram: as many more than bounds as there is one; not cumulative
};

// All metrics of a process. There is one in a server; tests may have many. Any thread.
class Registry {
 public:
  Registry();

  // Without labels.
  Scope scope() const;

  // Calls `visitor` with each series, in the order of family names, then of label values. Nothing is locked while it is
  // called, so it may take its time. A thread that registers or removes a metric meanwhile waits for the reading of one
  // family at most; writers never wait.
  void visit(const std::function<void(const Sample&)>& visitor) const;

 private:
  std::shared_ptr<internal::Core> core_;
};

// Metrics that one thread writes, and their scope. To be derived from; the metrics are members of the derived class.
class alignas(64) Group {
 public:
  explicit Group(Scope scope = {}) : scope_(std::move(scope)) {}
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const Scope& scope() const { return scope_; }

 private:
  const Scope scope_;
};

namespace internal {

// The registry reads these. Null: nowhere.
class Registration {
 public:
  using Read = std::function<double()>;

  // `values` of a counter: 1. Of a gauge: 1, the bits of a double. Of a histogram: the buckets, then the sum.
  Registration(const Scope& scope, Kind kind, std::string_view name, Help help,
               std::span<const std::atomic<uint64_t>> values, std::vector<double> bounds = {}, double units = 1);
  Registration(const Scope& scope, Kind kind, std::string_view name, Help help, Read read);
  ~Registration() {
    if (instance_ != nullptr) remove();
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

 private:
  void remove();
  Instance* instance_;
};

}  // namespace internal

// A number that only grows. Written by one thread at a time; value() by any.
class Counter {
 public:
  Counter(const Group& group, Name<Kind::kCounter> name, Help help) : Counter(group.scope(), name, help) {}
  Counter(const Scope& scope, Name<Kind::kCounter> name, Help help)
      : registration_(scope, Kind::kCounter, name.text(), help, {&value_, 1}) {}

  void add(uint64_t n = 1) { value_.store(value() + n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
  internal::Registration registration_;
};

// Counters of one family that differ in one label, one for each value of an enum. `size`: of the enum, whose values are
// 0, 1, …; `values`: the label's, in the same order. Written by one thread at a time; value() by any.
template <typename Key, size_t size>
class CountersBy {
 public:
  CountersBy(const Group& group, Name<Kind::kCounter> name, LabelName label,
             const std::array<std::string_view, size>& values, Help help)
      : CountersBy(group.scope(), name, label, values, help, std::make_index_sequence<size>()) {}

  void add(Key key, uint64_t n = 1) { counters_[static_cast<size_t>(key)].add(n); }
  uint64_t value(Key key) const { return counters_[static_cast<size_t>(key)].value(); }
  uint64_t value() const {  // of all
    uint64_t sum = 0;
    for (const Counter& counter : counters_) sum += counter.value();
    return sum;
  }

 private:
  template <size_t... i>
  CountersBy(const Scope& scope, Name<Kind::kCounter> name, LabelName label,
             const std::array<std::string_view, size>& values, Help help, std::index_sequence<i...>)
      : counters_{Counter(scope.with(label, std::string(values[i])), name, help)...} {}

  std::array<Counter, size> counters_;
};

// A number that goes up and down. Written by one thread at a time; value() by any.
class Gauge {
 public:
  Gauge(const Group& group, Name<Kind::kGauge> name, Help help)
      : registration_(group.scope(), Kind::kGauge, name.text(), help, {&bits_, 1}) {}

  void set(double value) { bits_.store(std::bit_cast<uint64_t>(value), std::memory_order_relaxed); }
  void add(double n) { set(value() + n); }
  double value() const { return std::bit_cast<double>(bits_.load(std::memory_order_relaxed)); }

 private:
  std::atomic<uint64_t> bits_{std::bit_cast<uint64_t>(0.0)};
  internal::Registration registration_;
};

// A number that is kept elsewhere, read when it is asked for: by the visitor's thread, under the registry's lock. So
// `read` must be quick, safe on any thread, and must not touch metrics; it is not called any more when the destructor
// has returned.
class CounterFunction {
 public:
  CounterFunction(const Scope& scope, Name<Kind::kCounter> name, Help help, std::function<double()> read)
      : registration_(scope, Kind::kCounter, name.text(), help, std::move(read)) {}

 private:
  internal::Registration registration_;
};
class GaugeFunction {
 public:
  GaugeFunction(const Scope& scope, Name<Kind::kGauge> name, Help help, std::function<double()> read)
      : registration_(scope, Kind::kGauge, name.text(), help, std::move(read)) {}

 private:
  internal::Registration registration_;
};

// How observations are spread. They are whole numbers of a unit of which `units` are a base unit: nanoseconds, 1e9 of
// which are a second. Written by one thread at a time.
class Histogram {
 public:
  static constexpr size_t kMaxBounds = 22;

  // `bounds` ascend, and are in the unit of observe(): a bucket holds what is not above its bound (`le`), and a last
  // one the rest. At most kMaxBounds.
  Histogram(const Group& group, Name<Kind::kHistogram> name, Help help, std::span<const uint64_t> bounds,
            double units = 1);

  void observe(uint64_t value) {
    size_t i = 0;
    while (i < size_ && value > bounds_[i]) ++i;
    add(values_[i], 1);
    add(values_[size_ + 1], value);
  }
  uint64_t count() const;
  uint64_t sum() const { return values_[size_ + 1].load(std::memory_order_relaxed); }  // in the unit of observe()

 private:
  static void add(std::atomic<uint64_t>& value, uint64_t n) {
    value.store(value.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }

  const size_t size_;                                           // bounds
  std::array<uint64_t, kMaxBounds> bounds_{};                   // the rest is not used
  std::array<std::atomic<uint64_t>, kMaxBounds + 2> values_{};  // the buckets, then the sum
  internal::Registration registration_;
};

}  // namespace idetcd::metrics
