#include "directive/chaos/setup.h"

#include "directive/nsid/chaos_text.h"
#include "directive/nsid/setup.h"

namespace idetcd::directive {

namespace {

constexpr const char* kAuthors = "The idetcd maintainers";

}  // namespace

// `chaos [VERSION] [AUTHORS…]`
Result<void> ChaosDirective::read(config::DirectiveCursor& cursor, const resolve::Block&) {
  std::vector<std::string> words = cursor.remainingArgs();
  for (std::string& word : words) word.resize(std::min(word.size(), kMaxChaosText));
  texts_.version = words.empty() ? "idetcd-" IDETCD_VERSION : words.front();
  texts_.authors = words.size() > 1 ? std::vector(words.begin() + 1, words.end()) : std::vector<std::string>{kAuthors};
  std::sort(texts_.authors.begin(), texts_.authors.end());
  texts_.authors.erase(std::unique(texts_.authors.begin(), texts_.authors.end()), texts_.authors.end());
  return cursor.finish();
}

Result<void> ChaosDirective::prepare(resolve::Process&, const resolve::Block& block) {
  if (block.find<NsidDirective>() != nullptr) return {};
  identity_ = std::make_shared<const Identity>(Identity::Options{.nsid = hostName()});
  return {};
}

// Between `nsid`, which is not asked after this one, and `idetcd`, which is asked before it and replaces its identity.
Result<void> ChaosDirective::addTo(resolve::Chain& chain, const resolve::LoopContext&) {
  if (identity_) addServerNames(chain, identity_);
  chain.addForOtherClasses(std::make_unique<Chaos>(texts_));
  return {};
}

const resolve::DirectiveType kChaosDirective{.name = "chaos",
                                             .syntax = "chaos [VERSION] [AUTHORS...]",
                                             .make = resolve::makeDirective<ChaosDirective>,
                                             .once = true};

}  // namespace idetcd::directive
