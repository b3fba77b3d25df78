#include "directive/loop/setup.h"

namespace idetcd::directive {

namespace {

class LoopHandler final : public resolve::Handler {
 public:
  explicit LoopHandler(std::shared_ptr<const resolver::LoopProbe> probe) : probe_(std::move(probe)) {}
  resolve::QueryOutcome answer(const dns::Query& query, const resolve::Request& request, uint16_t) override {
    probe_->see(query, request);
    return resolve::QueryOutcome::next();
  }

 private:
  const std::shared_ptr<const resolver::LoopProbe> probe_;
};

}  // namespace

Result<void> LoopDirective::addTo(resolve::Chain& chain, const resolve::LoopContext& context) {
  if (!probe_) {
    probe_ = std::make_shared<resolver::LoopProbe>(
        context.loop, resolver::LoopProbe::Options{.zone = context.block.keys.front().zone},
        [&chain](const dns::Query& query, const std::function<void(bool)>& done) {
          if (chain.parts.internal_queries != nullptr) chain.parts.internal_queries->ask(query, done);
        },
        [&process = context.process](const std::string& line) { process.fatal("plugin/loop: " + line); });
  }
  chain.add(std::make_unique<LoopHandler>(probe_));
  return {};
}

void LoopDirective::start() {
  if (probe_) probe_->start();
}

// It may live on a little, but says nothing of the servers that are in use from now on.
void LoopDirective::stop() {
  if (probe_) probe_->stop();
}

const resolve::DirectiveType kLoopDirective{
    .name = "loop", .syntax = "loop", .make = resolve::makeDirective<LoopDirective>, .once = true};

}  // namespace idetcd::directive
