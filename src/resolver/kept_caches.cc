#include "resolver/kept_caches.h"

namespace idetcd::resolver {

namespace {

constexpr size_t kEntriesAStep = 256;  // entries, in well under a millisecond

void append(std::string& text, std::string_view what, const std::vector<dns::Name>& names) {
  text += what;
  for (const dns::Name& name : names) text += " " + name.toString();
}

}  // namespace

// A request for a flush, as long as somebody works on it. Any thread.
class LiveCaches::Request {
 public:
  explicit Request(Done done) : done_(std::move(done)) {}
  ~Request() {
    if (unfinished_ > 0 && outcome_.error.empty()) outcome_.error = "a reload or the end of the process came between";
    done_(outcome_);
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  void begin(size_t parts) {
    const std::lock_guard lock(mutex_);
    unfinished_ += parts;
  }
  void finish(size_t flushed) {
    const std::lock_guard lock(mutex_);
    --unfinished_;
    outcome_.flushed += flushed;
  }
  void fail(std::string error) {
    const std::lock_guard lock(mutex_);
    outcome_.error = std::move(error);
  }

 private:
  const Done done_;
  std::mutex mutex_;  // guards what follows
  size_t unfinished_ = 0;
  FlushResult outcome_;
};

// One cache. On its loop; may be let go of anywhere.
class LiveCaches::Job : public std::enable_shared_from_this<Job> {
 public:
  Job(std::shared_ptr<LiveCaches> all, std::shared_ptr<Request> request, const dns::Name& zone,
      std::weak_ptr<Cache> cache, net::EventLoop& loop)
      : all_(std::move(all)), request_(std::move(request)), zone_(zone), cache_(std::move(cache)), loop_(loop) {
    request_->begin(1);
  }

  net::EventLoop& loop() const { return loop_; }

  void run() {
    for (const auto& saver : all_->saversOf(cache_)) {
      if (!saver->isLoading()) continue;
      if (!zone_.isRoot()) return saver->whenLoaded([self = shared_from_this()] { self->run(); });
      saver->stopLoading();
    }
    const auto cache = cache_.lock();
    if (!cache) return request_->finish(0);
    if (zone_.isRoot()) return finish(cache->flushAll());
    flush_ = cache->beginFlush(zone_);
    step();
  }

 private:
  void step() {
    const auto cache = cache_.lock();
    if (!cache) return request_->finish(0);
    const auto flushed = cache->flushSome(flush_, kEntriesAStep);
    if (!flushed) return loop_.post([self = shared_from_this()] { self->step(); });
    finish(*flushed);
  }

  // By the saver that is there now: a reload may have replaced it.
  void finish(size_t flushed) {
    const auto savers = all_->saversOf(cache_);
    for (const auto& saver : savers) {
      if (saver == savers.back()) break;
      for (auto& waiting : saver->yieldFile()) savers.back()->rewrite(std::move(waiting));
    }
    if (!savers.empty()) rewrite(*savers.back());
    request_->finish(flushed);
  }

  void rewrite(CacheSaver& saver) {
    request_->begin(1);
    saver.rewrite([request = request_, file = saver.file()](const Result<void>& written) {
      if (!written) request->fail(fmt::format("{}: {}; a restart may bring it back", file, written.error().message));
      request->finish(0);
    });
  }

  const std::shared_ptr<LiveCaches> all_;
  const std::shared_ptr<Request> request_;
  const dns::Name zone_;
  const std::weak_ptr<Cache> cache_;
  net::EventLoop& loop_;
  std::shared_ptr<Cache::Flush> flush_;
};

void LiveCaches::flush(const dns::Name& zone, Done done) {
  const auto request = std::make_shared<Request>(std::move(done));
  const std::lock_guard lock(mutex_);
  std::map<std::weak_ptr<Cache>, std::shared_ptr<Job>, std::owner_less<>> jobs;
  for (const User* user : users_) {
    auto& job = jobs[user->cache_];
    if (!job) job = std::make_shared<Job>(shared_from_this(), request, zone, user->cache_, user->loop_);
  }
  for (const auto& [cache, job] : jobs) job->loop().post([job = job] { job->run(); });
}

// One, but while a reload replaces those who use the cache: the latest is the last one. On its loop.
std::vector<std::shared_ptr<CacheSaver>> LiveCaches::saversOf(const std::weak_ptr<Cache>& cache) {
  std::vector<std::shared_ptr<CacheSaver>> savers;
  const std::lock_guard lock(mutex_);
  for (const User* user : users_) {
    const bool is_same = !user->cache_.owner_before(cache) && !cache.owner_before(user->cache_);
    if (auto saver = is_same ? user->saver_.lock() : nullptr) savers.push_back(std::move(saver));
  }
  return savers;
}

LiveCaches::User::User(std::shared_ptr<LiveCaches> all, std::weak_ptr<Cache> cache, std::weak_ptr<CacheSaver> saver,
                       net::EventLoop& loop)
    : all_(std::move(all)), cache_(std::move(cache)), saver_(std::move(saver)), loop_(loop) {
  const std::lock_guard lock(all_->mutex_);
  all_->users_.push_back(this);
}

LiveCaches::User::~User() {
  const std::lock_guard lock(all_->mutex_);
  std::erase(all_->users_, this);
}

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

std::string KeptCaches::rulesOf(const ResolverSettings& settings) {
  std::string text;
  if (!settings.withheld) return text;
  const PrivateSettings& withheld = *settings.withheld;
  append(text, "private", withheld.zones);
  append(text, " allow", withheld.allowed);
  append(text, " own", settings.own_names);
  for (const IpNetwork& network : withheld.networks)
    text += fmt::format(" {}/{}", network.address.toString(), network.prefix_length);
  return text + (withheld.allow_loopback ? " allow_loopback\n" : "\n");
}

std::string KeptCaches::serversOf(const ResolverSettings& settings) {
  std::string text;
  for (const Forwarder::Options& forward : settings.forwards) {
    append(text, "forward", forward.from);
    for (const UpstreamTarget& to : forward.to) {
      if (to.server) text += fmt::format(" {}%{}", to.server->toString(), to.server->server_name);
      if (to.host) text += fmt::format(" {}:{}", to.host->name.toString(), to.host->port);
      text += " " + to.file;
    }
    append(text, " except", forward.except);
    text += forward.trust_ad ? " trust-ad\n" : "\n";
  }
  return text;
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
