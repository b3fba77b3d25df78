#include "plugin/forward/kept_caches.h"

namespace idetcd::plugin {

KeptCaches::Found KeptCaches::of(const Block& block, size_t worker, net::EventLoop& loop, const Cache::Options& options,
                                 const metrics::Scope& metrics) {
  std::erase_if(kept_, [](const auto& kept) { return kept.second.cache.expired(); });
  Kept& kept = kept_[{worker, block.keys}];
  if (auto cache = kept.cache.lock(); cache && kept.loop == &loop && kept.block == block) {
    changes_.push_back({loop, cache, options});
    return {cache, false};
  }
  auto cache = std::make_shared<Cache>(options, metrics, executor_);
  kept = {block, &loop, cache};
  return {cache, true};
}

void KeptCaches::accept() {
  for (Change& change : std::exchange(changes_, {})) {
    change.loop.post([cache = std::move(change.cache), options = std::move(change.options)] {
      if (const auto kept = cache.lock()) kept->setOptions(options);
    });
  }
}

}  // namespace idetcd::plugin
