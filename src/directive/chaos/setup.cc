// The directive `chaos`: what this server says of itself in class CH.
#include "directive/chaos/chaos.h"
#include "directive/nsid/identity.h"
#include "resolve/directive.h"

namespace idetcd::directive {

namespace {

constexpr const char* kAuthors = "The idetcd maintainers";

class ChaosDirective final : public resolve::Configured<ChaosTexts> {
 public:
  // `chaos [VERSION] [AUTHORS…]`
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block&) override {
    std::vector<std::string> words = cursor.remainingArgs();
    for (std::string& word : words) word.resize(std::min(word.size(), kMaxChaosText));
    settings_.version = words.empty() ? "idetcd-" IDETCD_VERSION : words.front();
    settings_.authors =
        words.size() > 1 ? std::vector(words.begin() + 1, words.end()) : std::vector<std::string>{kAuthors};
    std::sort(settings_.authors.begin(), settings_.authors.end());
    settings_.authors.erase(std::unique(settings_.authors.begin(), settings_.authors.end()), settings_.authors.end());
    return cursor.finish();
  }
  Result<void> prepare(resolve::Process&, const resolve::Block& block) override {
    if (block.settings<NsidSettings>() != nullptr) return {};
    identity_ = std::make_shared<const Identity>(Identity::Options{.nsid = hostName()});
    return {};
  }
  // Between `nsid`, which is not asked after this one, and `idetcd`, which is asked before it and replaces its identity.
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext&) override {
    if (identity_) addServerNames(chain, identity_);
    chain.addForOtherClasses(resolve::makeHandler(
        [texts = settings_](const dns::Query& query, const resolve::Request& request, uint16_t flags) {
          return answerChaos(texts, query, request, flags);
        }));
    return {};
  }

 private:
  std::shared_ptr<const Identity> identity_;  // null: another directive of the block says which node this is
};

}  // namespace

resolve::QueryOutcome answerChaos(const ChaosTexts& texts, const dns::Query& query, const resolve::Request& request,
                                  uint16_t flags) {
  static const dns::Name kVersionBind = dns::Name::parse("version.bind.").value();
  static const dns::Name kVersionServer = dns::Name::parse("version.server.").value();
  static const dns::Name kAuthorsBind = dns::Name::parse("authors.bind.").value();
  if (query.qclass != dns::code(dns::RrClass::kCh)) return resolve::QueryOutcome::next();
  const auto is = [&query](const dns::Name& name) { return std::ranges::equal(query.name(), name.wire()); };
  if (is(kVersionBind) || is(kVersionServer)) {
    return answerWithTexts(query, request.response_limit, flags, std::span(&texts.version, 1));
  }
  if (is(kAuthorsBind)) return answerWithTexts(query, request.response_limit, flags, texts.authors);
  return resolve::QueryOutcome::next();
}

extern const resolve::DirectiveType kChaosDirective{.name = "chaos",
                                                    .syntax = "chaos [VERSION] [AUTHORS...]",
                                                    .make = resolve::makeDirective<ChaosDirective>,
                                                    .once = true};

}  // namespace idetcd::directive
