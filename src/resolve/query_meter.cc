#include "resolve/query_meter.h"

namespace idetcd::resolve {

void DurationHistogram::observe(std::chrono::nanoseconds duration, uint64_t times) {
  const auto nanoseconds = static_cast<uint64_t>(std::max<int64_t>(duration.count(), 0));
  size_t i = 0;
  while (i < kBounds.size() && nanoseconds > kBounds[i]) ++i;
  buckets_[i].add(times);
  sum_.add(nanoseconds * times);
}

size_t QueryMeter::typeIndex(uint16_t qtype) { return internal::typeIndexOf(qtype); }

void QueryMeter::onLateAnswer(const dns::Query& query, const Request& request, size_t size, DirectiveId by) {
  onAnswer(query, request, size, by);
  durations.observe(BootClock::now() - request.now);
}

std::string serverLabel(const SocketAddress& listening, config::Scheme scheme) {
  const std::string_view name = config::schemeName(scheme);
  if (listening.ip.isUnspecified()) return fmt::format("{}://:{}", name, listening.port);
  return fmt::format("{}://{}", name, listening.toString());
}

}  // namespace idetcd::resolve
