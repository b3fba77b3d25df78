// What the program in the kernel has counted, brought into the numbers of this process: those of the blocks' queries
// (resolve::QueryMeter), of the last minutes (resolve::QuerySamples), and its own. The first loop's thread.
#pragma once

#include <set>

#include "base/metrics.h"
#include "kernel/maps.h"
#include "resolve/query_meter.h"
#include "resolve/query_samples.h"

namespace idetcd::directive {

class KernelCounts : private metrics::Group {
 public:
  // A time that a query takes in the kernel, for histograms: it is too short for a clock to be worth reading.
  static constexpr std::chrono::nanoseconds kDuration{500};

  static constexpr std::array<const char*, kernel::kRcodes> kRcodeNames{"NOERROR", "NXDOMAIN"};
  static constexpr std::array<std::string_view, kernel::kPassReasons> kReasons{
      "checksum", "message", "edns", "type", "zone", "name", "expired", "changing", "room"};

  // Counts what comes from now on.
  KernelCounts(std::shared_ptr<const kernel::Maps> maps, metrics::Scope scope,
               std::shared_ptr<resolve::QuerySamples> samples);

  // Queries of one zone at one address.
  using Subject = std::pair<SocketAddress, std::string>;

  // The index in the map of meters for `of`, which is counted in `meter` too (may be null), as answered by the directive
  // `by`. The same for the same subject. None: all are in use.
  std::optional<uint16_t> meterFor(const Subject& of, std::shared_ptr<resolve::QueryMeter> meter,
                                   resolve::DirectiveId by);

  // Others are counted for the last time, and their meters become free.
  void keepOnly(const std::set<Subject>& subjects);

  // Adds what has come since the last time.
  void update(BootClock::time_point now);

 private:
  struct Answered : metrics::Counter {
    explicit Answered(const metrics::Scope& scope)
        : Counter(scope, "idetcd_xdp_answered_total", "Queries that the program in the kernel has answered.") {}
  };
  struct Source {
    std::optional<Subject> of;  // none: it is free
    std::shared_ptr<resolve::QueryMeter> meter;
    resolve::DirectiveId by{};
    kernel::Meter seen{};
  };

  uint64_t add(Source& source, const kernel::Meter& now);
  metrics::Counter& answered(size_t type, size_t rcode);

  const std::shared_ptr<const kernel::Maps> maps_;
  const std::shared_ptr<resolve::QuerySamples> samples_;
  std::array<Source, kernel::kMeters> sources_;
  std::map<std::pair<size_t, size_t>, std::unique_ptr<Answered>> answered_;  // by type and rcode
  metrics::CountersBy<kernel::PassReason, kernel::kPassReasons> passed_;
  std::array<uint64_t, kernel::kPassReasons> seen_passed_;
};

}  // namespace idetcd::directive
