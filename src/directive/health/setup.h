// The directive `health`: an endpoint that says that the process lives, and an end that waits for clients to go elsewhere.
#pragma once

#include "base/ip_address.h"
#include "http/listen_address.h"
#include "directive/health/self_check.h"
#include "resolve/directive.h"

namespace idetcd::directive {

struct HealthSettings {
  http::ListenAddress address;
  std::chrono::milliseconds lame_duck{0};
};

class HealthDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override;
  void start() override;
  void stop() override;

  const HealthSettings& settings() const { return settings_; }

 private:
  HealthSettings settings_;
  resolve::Process* process_ = nullptr;
  SocketAddress listening_;
  std::unique_ptr<SelfCheck> self_check_;
};

extern const resolve::DirectiveType kHealthDirective;

}  // namespace idetcd::directive
