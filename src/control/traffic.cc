#include "control/traffic.h"

#include <charconv>
#include <cmath>
#include <numeric>

#include "dns/name.h"
#include "dns/types.h"

namespace idetcd::control {

namespace {

using nlohmann::json;
using resolve::LoopSamples;
using resolve::QuerySamples;

constexpr size_t kMaxNames = 100;
constexpr double kClockTolerance = 1.5;  // seconds

using Loops = std::vector<std::shared_ptr<const QuerySamples>>;

double secondsOf(BootClock::time_point time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

QuerySamples::Sums sumUp(const Loops& loops, int64_t first, int64_t last) {
  QuerySamples::Sums sums;
  for (const auto& loop : loops) {
    for (int64_t second = first; second <= last; ++second) loop->read(second, sums);
  }
  return sums;
}

// The duration, in seconds, that the part `q` of all does not exceed. Null: there is none.
json quantile(const QuerySamples::Sums& sums, double q) {
  const auto total = std::accumulate(sums.durations.begin(), sums.durations.end(), uint64_t{0});
  if (total == 0) return nullptr;
  const double wanted = q * static_cast<double>(total);
  double before = 0;
  size_t bucket = 0;
  for (; bucket + 1 < sums.durations.size(); ++bucket) {
    const auto count = static_cast<double>(sums.durations[bucket]);
    if (count > 0 && before + count >= wanted) break;
    before += count;
  }
  const auto count = static_cast<double>(std::max<uint64_t>(sums.durations[bucket], 1));
  const auto low = static_cast<double>(QuerySamples::lowerBound(bucket));
  const auto high = static_cast<double>(QuerySamples::lowerBound(bucket + 1));
  return (low + (high - low) * std::min((wanted - before) / count, 1.0)) / 1e9;
}

double rateOf(uint64_t queries, int64_t seconds) {
  return seconds > 0 ? static_cast<double>(queries) / static_cast<double>(seconds) : 0;
}

void addDurations(const QuerySamples::Sums& sums, json& to) {
  to["p50_seconds"] = quantile(sums, 0.5);
  to["p99_seconds"] = quantile(sums, 0.99);
}

// The samples, weighted.
class Shares {
 public:
  void add(const QuerySamples::Sample& sample) {
    ++sampled_;
    total_ += sample.weight;
    rcodes_[sample.rcode] += sample.weight;
    if (sample.name.empty()) return;
    names_[{{sample.name.begin(), sample.name.end()}, sample.type}] += sample.weight;
  }

  uint64_t sampled() const { return sampled_; }
  json names(double rate) const {
    std::vector<const Names::value_type*> busiest;
    for (const auto& entry : names_) busiest.push_back(&entry);
    std::ranges::stable_sort(busiest, std::greater{}, [](const auto* entry) { return entry->second; });
    busiest.resize(std::min(busiest.size(), kMaxNames));
    auto list = json::array();
    for (const auto* entry : busiest) {
      const auto& [name, type] = entry->first;
      list.push_back({{"name", dns::nameToString(name.data())},
                      {"type", dns::kTypeNames.toString(type)},
                      {"share", shareOf(entry->second)},
                      {"rate", shareOf(entry->second) * rate}});
    }
    return list;
  }
  json rcodes() const {
    auto shares = json::object();
    for (const auto& [rcode, weight] : rcodes_) shares[dns::kRcodeNames.toString(rcode)] = shareOf(weight);
    return shares;
  }

 private:
  using Names = std::map<std::pair<std::vector<uint8_t>, uint16_t>, uint64_t>;  // in wire form, with the type

  double shareOf(uint64_t weight) const { return static_cast<double>(weight) / static_cast<double>(total_); }

  Names names_;
  std::map<uint16_t, uint64_t> rcodes_;
  uint64_t total_ = 0;
  uint64_t sampled_ = 0;
};

// The value of a parameter; `otherwise` if there is none. Nothing: it is no number.
template <typename Number>
std::optional<Number> number(const http::Request& request, std::string_view name, Number otherwise) {
  const std::string text = parameter(request, name);
  if (text.empty()) return otherwise;
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

Traffic::Now Traffic::Now::read() {
  const auto unix_time = std::chrono::system_clock::now().time_since_epoch();
  return {.boot = BootClock::now(), .unix_seconds = std::chrono::duration<double>(unix_time).count()};
}

Traffic::Traffic(resolve::Process& process, Now start)
    : process_(process),
      start_(QuerySamples::secondOf(start.boot)),
      unix_offset_(static_cast<int64_t>(std::floor(start.unix_seconds - secondsOf(start.boot)))) {}

void Traffic::addTo(Control& control) {
  control.addStatus("queries", [this] { return recent(); });
  control.add("/v1/history", [this](const http::Request& request) {
    const auto since = number<double>(request, "since", 0);
    if (!since || !std::isfinite(*since)) return control::refuse(400, "since: not a time in seconds");
    return answer(history(*since));
  });
  control.add("/v1/top", [this](const http::Request& request) {
    const auto seconds = number<int64_t>(request, "seconds", kRecent);
    if (!seconds || *seconds < 1) return control::refuse(400, "seconds: not a number of 1 or more");
    return answer(top(*seconds));
  });
}

nlohmann::json Traffic::history(double since, Now now) {
  const Loops loops = process_.state<LoopSamples>().all();
  const int64_t offset = unixOffset(now);
  const Period period = lastSeconds(QuerySamples::kSeconds, now);
  auto seconds = json::array();
  for (int64_t second = period.first; second <= period.last; ++second) {
    if (static_cast<double>(second + offset) <= since) continue;
    const QuerySamples::Sums sums = sumUp(loops, second, second);
    json entry{{"at", second + offset}, {"queries", sums.queries}, {"failures", sums.failures}};
    addDurations(sums, entry);
    seconds.push_back(std::move(entry));
  }
  return {{"now", now.unix_seconds}, {"seconds", std::move(seconds)}};
}

nlohmann::json Traffic::top(int64_t seconds, Now now) const {
  const Loops loops = process_.state<LoopSamples>().all();
  const Period period = lastSeconds(seconds, now);
  Shares shares;
  for (const auto& loop : loops) {
    loop->visit(period.first, period.last, [&shares](const auto& sample) { shares.add(sample); });
  }
  json all = sumsOf(period);
  all["sampled"] = shares.sampled();
  all["names"] = shares.names(all["rate"]);
  all["rcodes"] = shares.rcodes();
  return all;
}

nlohmann::json Traffic::recent(Now now) const { return sumsOf(lastSeconds(kRecent, now)); }

nlohmann::json Traffic::sumsOf(const Period& period) const {
  const auto sums = sumUp(process_.state<LoopSamples>().all(), period.first, period.last);
  json all{{"seconds", period.seconds()}, {"rate", rateOf(sums.queries, period.seconds())}};
  addDurations(sums, all);
  return all;
}

// None if the first one is not over.
Traffic::Period Traffic::lastSeconds(int64_t seconds, Now now) const {
  const int64_t last = std::max(QuerySamples::secondOf(now.boot - kSettling), start_) - 1;
  return {.first = std::max(last + 1 - std::min(seconds, QuerySamples::kSeconds), start_), .last = last};
}

// From a second of BootClock to the Unix time that it is shown with: the same at each reading, unless a clock was set.
int64_t Traffic::unixOffset(Now now) {
  const double actual = now.unix_seconds - secondsOf(now.boot);
  const int64_t used = unix_offset_.load();
  if (std::abs(actual - static_cast<double>(used) - 0.5) < kClockTolerance) return used;
  const auto anew = static_cast<int64_t>(std::floor(actual));
  unix_offset_.store(anew);
  return anew;
}

}  // namespace idetcd::control
