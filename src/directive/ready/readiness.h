// Missing parts of the configuration in use: the readiness of all directives in the blocks with `ready`.
//
// add() is called while a configuration is built, accept() on the first loop, respond() on the HTTP thread.
#pragma once

#include "base/log.h"
#include "http/endpoints.h"
#include "http/message.h"
#include "resolve/directive.h"

namespace idetcd::directive {

class Readiness final : public resolve::ProcessState {
 public:
  // Whether what was ready once is asked again.
  enum class Monitor : bool { kUntilReady, kContinuously };

  explicit Readiness(resolve::Process& process) : log_(process.log.named("plugin/ready")) {}

  // For the configuration that is being built. `missing`: see resolve::Directive::readiness().
  void add(std::string name, std::function<std::string()> missing, Monitor monitor);

  // 200 if nothing is missing, else 503 with a line "NAME: what" each. From prepareEnd() on 503.
  http::Response respond();

  void accept() override;
  void refuse() override;
  std::chrono::milliseconds prepareEnd() override;

 private:
  struct Check {
    std::string name;
    std::function<std::string()> missing;  // null: it was ready, and is not asked any more
    Monitor monitor;
  };

  const Logger log_;
  std::mutex mutex_;  // guards what follows
  std::vector<Check> used_;
  std::vector<Check> next_;
  bool ending_ = false;
  std::vector<std::string> last_said_;  // of the log: a probe may come every second
};

struct ReadySettings {
  http::ListenAddress address;
  Readiness::Monitor monitor = Readiness::Monitor::kUntilReady;
};

}  // namespace idetcd::directive
