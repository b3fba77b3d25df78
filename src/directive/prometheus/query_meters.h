// The meters of all blocks with `prometheus`, by server, zone and loop, for as long as the process lives: a reload goes
// on with those that are there. Any thread.
#pragma once

#include <tuple>

#include "base/ip_address.h"
#include "dns/name.h"
#include "http/endpoints.h"
#include "resolve/directive.h"
#include "resolve/query_meter.h"

namespace idetcd::directive {

// A family that is not declared in a metrics::Group. Names and labels by the rules of base/metrics.h.
struct Exposed {
  template <size_t name_size>
  consteval Exposed(const char (&family)[name_size], metrics::Kind family_kind, metrics::Help family_help,
                    std::span<const metrics::LabelName> family_labels = {})
      : name(family, name_size - 1), kind(family_kind), help(family_help), labels(family_labels) {
    if (!metrics::isValidName(kind, name)) throw "not a name for this kind of metric";
  }

  std::string_view name;
  metrics::Kind kind;
  metrics::Help help;
  std::span<const metrics::LabelName> labels;
};

// A scrape's content: families of series, at one moment, and their text in Prometheus's exposition format 0.0.4. One
// thread.
//
// The text is written here, and not by prometheus-cpp: Debian has no archive of that, and the server is one file.
class Snapshot {
 public:
  struct Series {
    double value = 0;               // of a histogram: the number of observations
    double sum = 0;                 // of a histogram
    std::vector<uint64_t> buckets;  // of a histogram, one more than bounds; not cumulative
  };
  using LabelValues = std::vector<std::string>;  // beside label_names
  struct Family {
    metrics::Kind kind = metrics::Kind::kCounter;
    std::string help;
    std::vector<std::string> label_names;
    std::vector<double> bounds;
    std::map<LabelValues, Series> series;
  };

  // Series with the same labels are one, their sum.
  void add(const metrics::Sample& sample);
  void add(const Exposed& family, LabelValues labels, double value);
  void add(const Exposed& family, LabelValues labels, const std::vector<double>& bounds,
           std::span<const uint64_t> buckets, double sum);

  // Null: there is none.
  const Family* find(std::string_view name) const;
  Family& family(const Exposed& exposed);

  std::string text() const;

 private:
  std::map<std::string, Family, std::less<>> families_;
};

struct PrometheusSettings {
  http::ListenAddress address;
};

class QueryMeters final : public resolve::ProcessState {
 public:
  // One directive of one zone at one listening address.
  struct Enabled {
    std::string server;
    std::string zone;
    std::string directive;
  };

  explicit QueryMeters(resolve::Process& process) : process_(process) {}

  // To be written by the loop of `worker` alone.
  std::shared_ptr<resolve::QueryMeter> meterOf(const std::string& server, const std::string& zone, size_t worker);

  // The directives of the block of `owner`; none any more.
  void enable(const void* owner, std::vector<Enabled> directives);
  void disable(const void* owner);

  // All numbers of the process, those of its metrics::Registry among them.
  Snapshot snapshot() const;

 private:
  using Key = std::tuple<std::string, std::string, size_t>;

  void addQueries(Snapshot& snapshot) const;

  resolve::Process& process_;
  mutable std::mutex mutex_;  // guards the maps, not the meters
  std::map<Key, std::shared_ptr<resolve::QueryMeter>> meters_;
  std::map<const void*, std::vector<Enabled>> enabled_;
};

// Adds the families that follow from others, and for which nothing is counted: CoreDNS's duplicates (`coredns_forward_*` for
// `coredns_proxy_*`), and a cache's requests.
void addDerived(Snapshot& snapshot);

}  // namespace idetcd::directive
