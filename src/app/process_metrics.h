// Metrics of the process as a whole.
#pragma once

#include "base/file_descriptor.h"
#include "base/log.h"
#include "base/metrics.h"
#include "net/descriptor_budget.h"

namespace idetcd::app {

class ProcessMetrics {
 public:
  ProcessMetrics(const metrics::Scope& scope, const Logger& log, const std::shared_ptr<net::DescriptorBudget>& budget);

  // By one thread.
  void countFailedReload() { failed_reloads_.add(); }

 private:
  const metrics::CounterFunction log_dropped_;
  const metrics::GaugeFunction descriptors_;
  const metrics::GaugeFunction max_descriptors_;
  const std::shared_ptr<const FileDescriptor> memory_file_;
  const metrics::CounterFunction cpu_seconds_;
  const metrics::GaugeFunction resident_bytes_;
  const metrics::GaugeFunction virtual_bytes_;
  const metrics::GaugeFunction open_descriptors_;
  const metrics::GaugeFunction descriptor_limit_;
  const metrics::GaugeFunction start_time_;
  metrics::Counter failed_reloads_;
};

}  // namespace idetcd::app
