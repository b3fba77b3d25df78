#include "resolver/cache_saver.h"

namespace idetcd::resolver {

namespace {

using std::chrono::milliseconds;

constexpr size_t kAnswersAStep = 256;  // answers, in well under a millisecond
constexpr milliseconds kPause{1};
constexpr size_t kMaxUnwritten = 8;  // steps: a slow disk holds up the next ones

}  // namespace

// Shared with the strand.
struct CacheSaver::Loading {
  std::atomic<bool> is_read{false};
  std::optional<AnswersReader> reader;  // once it is read; none: there is nothing to load
};

// The file is the strand's, the rest the loop's.
struct CacheSaver::Saving {
  std::optional<AnswersWriter> file;
  Error error;  // why there is no file
  std::atomic<size_t> unwritten{0};
};

std::shared_ptr<CacheSaver> CacheSaver::make(Options options, std::shared_ptr<Cache> cache, net::EventLoop& loop,
                                             resolve::Process& process) {
  const std::shared_ptr<CacheSaver> saver(new CacheSaver(std::move(options), std::move(cache), loop, process));
  saver->load();
  return saver;
}

CacheSaver::CacheSaver(Options options, std::shared_ptr<Cache> cache, net::EventLoop& loop, resolve::Process& process)
    : options_(std::move(options)),
      cache_(std::move(cache)),
      loop_(loop),
      savers_(process.state<SavedCaches>().savers),
      log_(process.log.named("plugin/cache")),
      strand_(savers_->strandOf(options_.file, *process.executor)),
      timer_(loop, [this] { onTimer(); }) {
  savers_->add(*this);
}

CacheSaver::~CacheSaver() {
  savers_->remove(*this);
  dropSaving();
}

void CacheSaver::load() {
  if (!options_.loads) return timer_.start(kInterval);
  loading_ = std::make_shared<Loading>();
  strand_->submit([loading = loading_, options = options_, log = log_] {
    auto reader = AnswersReader::open(options.file, options.rules, options.max_bytes);
    if (reader) {
      loading->reader.emplace(std::move(*reader));
    } else if (reader.error().code != ErrorCode::kNotFound) {
      log.warning("{}: {}; the cache begins empty", options.file, reader.error().message);
    }
    loading->is_read = true;
  });
  timer_.start(kPause);
}

void CacheSaver::onTimer() {
  if (loading_) return restoreSome();
  if (!saving_) beginSaving();
  saveSome();
}

void CacheSaver::restoreSome() {
  if (!loading_->is_read) return timer_.start(kPause);
  if (loading_->reader && loading_->reader->restore(*cache_, options_.seed, Clocks::now(), kAnswersAStep))
    return timer_.start(kPause);
  if (loading_->reader)
    log_.info("{} answers of {}, {} read", cache_->size(), options_.file, loading_->reader->count());
  timer_.start(kInterval);
  endLoading();
}

void CacheSaver::stopLoading() {
  if (!loading_) return;
  timer_.start(kInterval);
  endLoading();
}

// Whoever waited for it may want a file at once. What was read is as large as the cache: it is freed where it was read.
void CacheSaver::endLoading() {
  strand_->submit([loading = std::exchange(loading_, nullptr)] {});
  for (const auto& then : std::exchange(when_loaded_, {})) then();
}

void CacheSaver::rewrite(Written done) {
  assert(!isLoading());
  dropSaving();
  when_written_.push_back(std::move(done));
  timer_.start(kPause);  // begins anew
}

std::vector<CacheSaver::Written> CacheSaver::yieldFile() {
  dropSaving();
  timer_.start(kInterval);
  return std::exchange(when_written_, {});
}

// On the strand, so before the next one begins.
void CacheSaver::dropSaving() {
  if (saving_) strand_->submit([saving = std::exchange(saving_, nullptr)] { saving->file.reset(); });
}

void CacheSaver::beginSaving() {
  saving_ = std::make_shared<Saving>();
  cache_->beginWalk();
  strand_->submit([saving = saving_, file = options_.file, rules = options_.rules] {
    auto writer = AnswersWriter::begin(file, rules);
    if (writer) {
      saving->file.emplace(std::move(*writer));
    } else {
      saving->error = std::move(writer.error());
    }
  });
}

void CacheSaver::saveSome() {
  if (saving_->unwritten >= kMaxUnwritten || appendSome()) return timer_.start(kPause);
  commit(nullptr);
  timer_.start(kInterval);
}

// False: there are no more.
bool CacheSaver::appendSome() {
  std::string bytes;
  uint64_t count = 0;
  const Clocks clocks = Clocks::now();
  const bool more = cache_->walk(kAnswersAStep, [&](const Cache::Kept& kept) { count += appendAnswer(kept, clocks, bytes); });
  ++saving_->unwritten;
  strand_->submit([saving = saving_, bytes = std::move(bytes), count] {
    if (saving->file) {
      if (auto written = saving->file->append(bytes, count); !written) {
        saving->error = std::move(written.error());
        saving->file.reset();
      }
    }
    --saving->unwritten;
  });
  return more;
}

void CacheSaver::commit(const std::shared_ptr<std::promise<void>>& done) {
  const auto finish = [saving = std::exchange(saving_, nullptr), file = options_.file, log = log_, done,
                       when_written = std::exchange(when_written_, {})] {
    const Result<void> written = saving->file ? saving->file->commit() : tl::unexpected(saving->error);
    if (!written) log.error("{}: {}; what is cached is not kept over a restart", file, written.error().message);
    for (const Written& call : when_written) call(written);
    if (done) done->set_value();
  };
  if (!strand_->submit(finish)) finish();
}

void CacheSaver::saveAll(const std::shared_ptr<std::promise<void>>& done) {
  timer_.stop();
  while (loading_ && loading_->is_read && loading_->reader &&
         loading_->reader->restore(*cache_, options_.seed, Clocks::now(), kAnswersAStep)) {
  }
  if (loading_) endLoading();
  beginSaving();
  while (appendSome()) {
  }
  commit(done);
}

// --- all of them ---

void CacheSavers::add(CacheSaver& saver) {
  const std::lock_guard lock(mutex_);
  savers_.push_back(&saver);
}

void CacheSavers::remove(const CacheSaver& saver) {
  const std::lock_guard lock(mutex_);
  std::erase(savers_, &saver);
}

std::shared_ptr<Executor::Strand> CacheSavers::strandOf(const std::string& file, Executor& executor) {
  const std::lock_guard lock(mutex_);
  std::erase_if(strands_, [](const auto& one) { return one.second.expired(); });
  if (const auto known = strands_.find(file); known != strands_.end()) {
    if (auto strand = known->second.lock()) return strand;
  }
  auto strand = executor.makeStrand();
  strands_[file] = strand;
  return strand;
}

void CacheSavers::saveAll(milliseconds budget) {
  std::vector<std::future<void>> saved;
  {
    const std::lock_guard lock(mutex_);
    for (CacheSaver* saver : savers_) {
      const auto weak = saver->weak_from_this();
      auto done = std::make_shared<std::promise<void>>();
      saved.push_back(done->get_future());
      saver->loop().post([weak, done = std::move(done)] {
        if (const auto alive = weak.lock()) {
          alive->saveAll(done);
        } else {
          done->set_value();
        }
      });
    }
  }
  const auto deadline = std::chrono::steady_clock::now() + budget;
  for (const std::future<void>& one : saved) one.wait_until(deadline);
}

}  // namespace idetcd::resolver
