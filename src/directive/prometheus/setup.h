// The directive `prometheus`: the numbers of this process over HTTP, and those of the block's queries among them.
#pragma once

#include "directive/prometheus/query_meters.h"
#include "http/listen_address.h"
#include "resolve/directive.h"

namespace idetcd::directive {

class PrometheusDirective final : public resolve::Directive {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override;
  Result<void> prepare(resolve::Process& process, const resolve::Block& block) override;
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override;
  void start() override;
  void stop() override;

  const http::ListenAddress& address() const { return address_; }

 private:
  void noteServers(const resolve::LoopContext& context);

  http::ListenAddress address_;
  QueryMeters* meters_ = nullptr;                // of the process
  std::vector<QueryMeters::Enabled> enabled_{};  // the directives of the block
};

extern const resolve::DirectiveType kPrometheusDirective;

}  // namespace idetcd::directive
