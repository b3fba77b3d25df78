#include "resolver/cache_saver.h"

#include <ctime>

#include "dns/packed_response.h"

namespace idetcd::resolver {

namespace {

using std::chrono::nanoseconds;

constexpr std::string_view kMagic = "idetcdA2";
constexpr size_t kStart = kMagic.size() + sizeof(uint64_t);  // with the hash of the rules
constexpr mode_t kPrivate = 0600;

// As it stands in the file.
struct AnswerHead {
  uint32_t size;
  uint8_t key_flags;
  uint8_t frequency;
  uint8_t proven;
  uint8_t unused;
  int64_t came_at_ns;  // since 1970
};
static_assert(sizeof(AnswerHead) == 16);

struct FileEnd {
  uint64_t count;
  uint64_t hash;
};

// One message, and the query that it answers.
struct Scratch {
  std::array<uint8_t, dns::kMaxMessageSize + dns::kReadSlack> bytes;
};
Scratch& scratch() {
  static thread_local const auto kScratch = std::make_unique<Scratch>();
  return *kScratch;
}

// A query of a client that understands all that an answer can tell, over the scratch. The name is in lower case.
bool makeQuery(std::span<const uint8_t> name, uint16_t qtype, uint8_t key_flags, HashSeed seed, dns::Query& query) {
  uint8_t* const message = scratch().bytes.data();
  std::fill_n(message, dns::kHeaderSize, uint8_t{0});
  const unsigned checking_disabled = (key_flags & Cache::kCheckingDisabled) != 0 ? +dns::kFlagCd : 0;
  dns::store16(message + 2, static_cast<uint16_t>(dns::kFlagRd | dns::kFlagAd | checking_disabled));
  dns::store16(message + 4, 1);
  dns::store16(message + 10, 1);
  uint8_t* at = std::copy(name.begin(), name.end(), message + dns::kHeaderSize);
  dns::store16(at, qtype);
  dns::store16(at + 2, dns::code(dns::RrClass::kIn));
  at += 4;
  *at++ = 0;  // OPT: the root, type, payload size, extended flags, no options
  dns::store16(at, dns::code(dns::RrType::kOpt));
  dns::store16(at + 2, static_cast<uint16_t>(dns::kMaxMessageSize));
  dns::store32(at + 4, (key_flags & Cache::kDnssecOk) != 0 ? 0x8000 : 0);
  dns::store16(at + 8, 0);
  at += 10;
  return dns::parseQuery(message, static_cast<size_t>(at - message), seed, query) == dns::ParseOutcome::kQuery;
}

// The name of the question, without compression; empty: there is none.
std::span<const uint8_t> questionName(std::span<const uint8_t> message) {
  size_t at = dns::kHeaderSize;
  while (at < message.size() && message[at] != 0 && message[at] <= 63) at += message[at] + 1u;
  const size_t size = at + 1 - dns::kHeaderSize;
  if (at + 5 > message.size() || message[at] != 0 || size > dns::kMaxNameLength) return {};
  return message.subspan(dns::kHeaderSize, size);
}

std::string_view viewOf(const void* object, size_t size) { return {static_cast<const char*>(object), size}; }

template <typename T>
T loadFrom(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

using std::chrono::milliseconds;

constexpr size_t kAnswersAStep = 256;  // answers, in well under a millisecond
constexpr milliseconds kPause{1};
constexpr size_t kMaxUnwritten = 8;  // steps: a slow disk holds up the next ones

}  // namespace

Clocks Clocks::now() {
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  return {BootClock::now(), std::chrono::seconds(wall.tv_sec) + nanoseconds(wall.tv_nsec)};
}

bool appendAnswer(const Cache::Kept& kept, const Clocks& clocks, std::string& bytes) {
  dns::Query query;
  if (!makeQuery(kept.name, kept.qtype, kept.key_flags, 0, query)) return false;
  const size_t size = dns::writePackedResponse(*kept.response, query, dns::kMaxMessageSize, {});
  const nanoseconds came_at = clocks.wall - (clocks.boot - kept.came_at);
  const AnswerHead head{static_cast<uint32_t>(size),
                        kept.key_flags,
                        kept.frequency,
                        static_cast<uint8_t>(kept.proven),
                        0,
                        came_at.count()};
  bytes.append(viewOf(&head, sizeof(head)));
  bytes.append(viewOf(query.message, size));
  return true;
}

// --- writing ---

AnswersWriter::AnswersWriter(FileReplacement file)
    : file_(std::move(file)), hash_(std::make_unique_for_overwrite<XXH3_state_t>()) {
  XXH3_64bits_reset(hash_.get());
}

Result<AnswersWriter> AnswersWriter::begin(std::string path, std::string_view rules) {
  auto file = FileReplacement::begin(std::move(path), kPrivate);
  if (!file) return tl::unexpected(file.error());
  AnswersWriter writer(std::move(*file));
  const uint64_t rules_hash = XXH3_64bits(rules.data(), rules.size());
  std::string start(kMagic);
  start += viewOf(&rules_hash, sizeof(rules_hash));
  if (auto written = writer.write(start); !written) return tl::unexpected(written.error());
  return writer;
}

Result<void> AnswersWriter::write(std::string_view bytes) {
  XXH3_64bits_update(hash_.get(), bytes.data(), bytes.size());
  return file_.append(bytes);
}

Result<void> AnswersWriter::append(std::string_view bytes, uint64_t count) {
  count_ += count;
  return write(bytes);
}

Result<void> AnswersWriter::commit() {
  const uint32_t no_more = 0;
  if (auto written = write(viewOf(&no_more, sizeof(no_more))); !written) return written;
  if (auto written = write(viewOf(&count_, sizeof(count_))); !written) return written;
  const uint64_t hash = XXH3_64bits_digest(hash_.get());
  if (auto written = file_.append(viewOf(&hash, sizeof(hash))); !written) return written;
  return file_.commit();
}

// --- reading ---

Result<AnswersReader> AnswersReader::open(const std::string& path, std::string_view rules, size_t max_bytes) {
  auto bytes = readFile(path, max_bytes);
  if (!bytes) return tl::unexpected(bytes.error());
  constexpr size_t kEnd = sizeof(uint32_t) + sizeof(FileEnd);
  if (bytes->size() < kStart + kEnd || !bytes->starts_with(kMagic)) return fail("not a file of answers");
  const auto end = loadFrom<FileEnd>(*bytes, bytes->size() - sizeof(FileEnd));
  if (XXH3_64bits(bytes->data(), bytes->size() - sizeof(uint64_t)) != end.hash) return fail("it is damaged");
  if (loadFrom<uint64_t>(*bytes, kMagic.size()) != XXH3_64bits(rules.data(), rules.size()))
    return fail("it was kept with another private or forward");
  bytes->append(dns::kReadSlack, '\0');
  AnswersReader reader(std::move(*bytes), end.count);
  reader.next_ = kStart;
  return reader;
}

bool AnswersReader::restore(Cache& cache, HashSeed seed, const Clocks& clocks, size_t count) {
  const size_t end = bytes_.size() - dns::kReadSlack - sizeof(FileEnd);
  for (size_t i = 0; i < count; ++i) {
    if (next_ + sizeof(AnswerHead) > end) return false;
    const auto head = loadFrom<AnswerHead>(bytes_, next_);
    if (head.size == 0 || head.size > end - next_ - sizeof(AnswerHead)) return false;
    const auto* message = reinterpret_cast<const uint8_t*>(bytes_.data()) + next_ + sizeof(AnswerHead);
    next_ += sizeof(AnswerHead) + head.size;
    const std::span<const uint8_t> answer(message, head.size);
    const auto name = questionName(answer);
    if (name.empty() || head.came_at_ns < 0 || nanoseconds(head.came_at_ns) > clocks.wall) continue;
    const nanoseconds age = clocks.wall - nanoseconds(head.came_at_ns);
    dns::Query query;
    StoredResponse response;
    if (!makeQuery(name, dns::load16(name.data() + name.size()), head.key_flags, seed, query)) continue;
    if (readUpstreamResponse(answer, 0, query, response) != UpstreamVerdict::kAccepted) continue;
    cache.restore(query, response,
                  {.came_at = clocks.boot - age, .frequency = head.frequency, .proven = head.proven != 0}, clocks.boot);
  }
  return true;
}

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
