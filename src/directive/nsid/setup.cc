// The directive `nsid`: what a node says of itself.
#include <unistd.h>

#include "directive/nsid/identity.h"
#include "resolve/directive.h"

namespace idetcd::directive {

namespace {

class ChaosHandler final : public resolve::Handler {
 public:
  explicit ChaosHandler(std::shared_ptr<const Identity> identity) : identity_(std::move(identity)) {}
  resolve::QueryOutcome answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) override {
    if (query.qclass != dns::code(dns::RrClass::kCh)) return resolve::QueryOutcome::next();
    return identity_->answerChaos(query, request.response_limit, flags);
  }

 private:
  const std::shared_ptr<const Identity> identity_;
};

class NsidDirective final : public resolve::Configured<NsidSettings> {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block&) override {
    constexpr size_t kMaxData = 255;
    std::string data;
    for (const std::string& word : cursor.remainingArgs()) data += data.empty() ? word : " " + word;
    if (data.size() > kMaxData) return cursor.error(fmt::format("nsid data of more than {} bytes", kMaxData));
    settings_.data = std::move(data);
    return cursor.finish();
  }
  // The identity of a block of no cluster. Of another one `idetcd` makes it.
  Result<void> prepare(resolve::Process&, const resolve::Block&) override {
    identity_ = std::make_shared<const Identity>(
        Identity::Options{.nsid = settings_.data.empty() ? hostName() : settings_.data});
    return {};
  }
  // Before `idetcd`, which replaces it.
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext&) override {
    addIdentity(chain, identity_);
    return {};
  }

 private:
  std::shared_ptr<const Identity> identity_;
};

}  // namespace

std::string hostName() {
  char name[256];
  return gethostname(name, sizeof(name)) == 0 ? std::string(name, strnlen(name, sizeof(name))) : std::string();
}

void addIdentity(resolve::Chain& chain, std::shared_ptr<const Identity> identity) {
  chain.parts.nsid = identity;
  addServerNames(chain, std::move(identity));
}

void addServerNames(resolve::Chain& chain, std::shared_ptr<const Identity> identity) {
  chain.addForOtherClasses(std::make_unique<ChaosHandler>(std::move(identity)));
}

extern const resolve::DirectiveType kNsidDirective{
    .name = "nsid", .syntax = "nsid [DATA]", .make = resolve::makeDirective<NsidDirective>, .once = true};

}  // namespace idetcd::directive
