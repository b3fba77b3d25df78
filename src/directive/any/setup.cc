#include "directive/any/setup.h"

#include "directive/any/any.h"

namespace idetcd::directive {

namespace {

class AnyHandler final : public resolve::Handler {
 public:
  resolve::QueryOutcome answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) override {
    return answerAny(query, request.response_limit, flags);
  }
};

}  // namespace

Result<void> AnyDirective::addTo(resolve::Chain& chain, const resolve::LoopContext&) {
  chain.add(std::make_unique<AnyHandler>());
  return {};
}

const resolve::DirectiveType kAnyDirective{
    .name = "any", .syntax = "any", .make = resolve::makeDirective<AnyDirective>};

}  // namespace idetcd::directive
