#include "directive/prometheus/snapshot.h"

#include <cmath>
#include <iterator>

namespace idetcd::directive {

namespace {

using metrics::Kind;

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

}  // namespace idetcd::directive
