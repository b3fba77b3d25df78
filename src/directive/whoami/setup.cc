#include "directive/whoami/setup.h"

#include "directive/whoami/whoami.h"

namespace idetcd::directive {

namespace {

class WhoamiHandler final : public resolve::Handler {
 public:
  resolve::QueryOutcome answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) override {
    return answerWhoami(query, request, flags);
  }
};

}  // namespace

Result<void> WhoamiDirective::addTo(resolve::Chain& chain, const resolve::LoopContext&) {
  chain.add(std::make_unique<WhoamiHandler>());
  return {};
}

const resolve::DirectiveType kWhoamiDirective{
    .name = "whoami", .syntax = "whoami", .make = resolve::makeDirective<WhoamiDirective>};

}  // namespace idetcd::directive
