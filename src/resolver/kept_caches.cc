#include "resolver/kept_caches.h"

namespace idetcd::resolver {

std::string KeptCaches::keysOf(const resolve::Block& block) {
  std::string text;
  for (const config::ServerKey& key : block.keys) text += (text.empty() ? "" : " ") + key.text;
  return text;
}

std::string KeptCaches::nameOf(const std::string& keys, const std::vector<std::string>& listen) const {
  const auto announced = announced_.find(keys);
  if (announced == announced_.end() || announced->second == 1) return keys;
  return fmt::format("{} on {}", keys, fmt::join(listen, " "));
}

KeptCaches::Found KeptCaches::of(const Block& block, size_t worker, net::EventLoop& loop, const Cache::Options& options,
                                 const metrics::Scope& metrics) {
  const std::pair key{worker, block.name};
  if (const auto used = used_.find(key); used != used_.end()) {
    auto cache = used->second.cache.lock();
    if (cache && used->second.loop == &loop && used->second.block == block) {
      next_[key] = used->second;
      changes_.push_back({loop, cache, options});
      return {cache, false};
    }
  }
  auto cache = std::make_shared<Cache>(options, metrics, executor_);
  next_[key] = {block, &loop, cache};
  return {cache, true};
}

void KeptCaches::accept() {
  used_ = std::exchange(next_, {});
  for (Change& change : std::exchange(changes_, {})) {
    change.loop.post([cache = std::move(change.cache), options = std::move(change.options)] {
      if (const auto kept = cache.lock()) kept->setOptions(options);
    });
  }
  announced_.clear();
}

void KeptCaches::refuse() {
  next_.clear();
  changes_.clear();
  announced_.clear();
}

}  // namespace idetcd::resolver
