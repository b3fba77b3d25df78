#include "resolver/upstream_file.h"

namespace idetcd::resolver {

Result<std::shared_ptr<UpstreamFile>> UpstreamFile::open(const std::string& path, std::chrono::milliseconds interval,
                                                         Executor& executor) {
  WatchedFile file(path);
  const auto text = file.readIfChanged();
  if (!text) return fail(fmt::format("cannot read {}: {}", path, text.error().message), text.error().code);
  std::shared_ptr<UpstreamFile> opened(new UpstreamFile);
  opened->shared_->set(parseResolvConf(text->value_or("")));
  opened->watch_.emplace(executor, std::move(file), FileWatch::Options{.interval = interval},
                         [shared = opened->shared_](const auto& content) { shared->onRead(content); });
  return opened;
}

void UpstreamFile::Shared::onRead(const Result<std::optional<std::string>>& content) {
  if (!content || !*content || (*content)->empty()) return;
  auto servers = parseResolvConf(**content);
  if (servers != *newest()) set(std::move(servers));
}

void UpstreamFile::Shared::set(std::vector<UpstreamAddress> servers) {
  auto now = std::make_shared<const std::vector<UpstreamAddress>>(std::move(servers));
  const std::lock_guard lock(mutex_);
  servers_ = std::move(now);
  for (const auto& [subscription, on_change] : subscriptions_) on_change();
}

UpstreamFile::Servers UpstreamFile::Shared::newest() const {
  const std::lock_guard lock(mutex_);
  return servers_;
}

void UpstreamFile::Shared::add(const Subscription* subscription, std::function<void()> on_change) {
  const std::lock_guard lock(mutex_);
  subscriptions_.emplace_back(subscription, std::move(on_change));
}

void UpstreamFile::Shared::remove(const Subscription* subscription) {
  const std::lock_guard lock(mutex_);
  std::erase_if(subscriptions_, [subscription](const auto& entry) { return entry.first == subscription; });
}

UpstreamFile::Subscription::Subscription(const UpstreamFile& file, std::function<void()> on_change)
    : shared_(file.shared_) {
  shared_->add(this, std::move(on_change));
}

UpstreamFile::Subscription::~Subscription() { shared_->remove(this); }

}  // namespace idetcd::resolver
