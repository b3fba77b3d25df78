// Keeps a file of what one cache holds, and fills the cache from it at the start. The disk is waited for on the
// executor; the loop gives a millisecond at a time to it.
#pragma once

#include <future>

#include "base/executor.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "net/event_loop.h"
#include "resolve/directive.h"
#include "resolver/cache.h"

namespace idetcd::resolver {

// The content of a cache, in a file, so that the next process begins with it.
//
//   bytes   8  "idetcdA2"
//           8  XXH3-64 of the rules that the answers were kept by, and of whose they are (KeptCaches)
//   then for each answer
//            4  size of the message, above 0
//            1  1: CD, 2: DO, as it was asked for
//            1  how often it was asked for of late
//            1  1: asked for again since it came
//            1  0
//            8  when it came, in nanoseconds since 1970
//            …  the answer, a DNS message with its question
//   then     4  0
//            8  number of answers
//            8  XXH3-64 of all before
//
// Numbers are in the order of the machine: the file never leaves it. A file that is cut off, damaged or too large is
// refused as a whole, and so is one of other rules: what these withhold is in it, or what other servers have said. Only the
// owner may read it. Its messages are read as strictly as an upstream's (resolver::readUpstreamResponse).

// The two clocks at one moment.
struct Clocks {
  BootClock::time_point boot;
  std::chrono::nanoseconds wall;  // since 1970
  static Clocks now();
};

// Appends the file's form of one answer to `bytes`. False: nothing, as it cannot be written as a message. Any
// thread, one at a time for each `bytes`.
bool appendAnswer(const Cache::Kept& kept, const Clocks& clocks, std::string& bytes);

// Blocking; one thread at a time.
class AnswersWriter {
 public:
  static Result<AnswersWriter> begin(std::string path, std::string_view rules);
  // Of appendAnswer(), whole answers.
  Result<void> append(std::string_view bytes, uint64_t count);
  // The file is there, in the place of the one before. Dropped without it, this leaves nothing.
  Result<void> commit();

 private:
  explicit AnswersWriter(FileReplacement file);
  Result<void> write(std::string_view bytes);

  FileReplacement file_;
  std::unique_ptr<XXH3_state_t> hash_;  // it is large, and must not move
  uint64_t count_ = 0;
};

// The file's answers, all of which have proved to be as they were written.
class AnswersReader {
 public:
  // Blocking. kNotFound: there is no such file.
  static Result<AnswersReader> open(const std::string& path, std::string_view rules, size_t max_bytes);

  // Puts the next `count` answers into the cache, but for those that have ended, that it has already, or that came in
  // the future of `clocks`: the wall clock was set back. False: there are no more.
  bool restore(Cache& cache, HashSeed seed, const Clocks& clocks, size_t count);
  uint64_t count() const { return count_; }

 private:
  AnswersReader(std::string bytes, uint64_t count) : bytes_(std::move(bytes)), count_(count) {}

  std::string bytes_;  // with kReadSlack more at its end
  uint64_t count_;
  size_t next_ = 0;
};

class CacheSavers;

// Belongs to the loop of its cache.
class CacheSaver : public std::enable_shared_from_this<CacheSaver> {
 public:
  struct Options {
    std::string file;
    std::string rules{};   // of KeptCaches, with the servers: only what was kept by these is read
    HashSeed seed = 0;     // of the names that the cache is asked for
    bool loads = true;     // false: the cache is an older one, and has more than the file
    size_t max_bytes = 0;  // of a file that is read
  };
  // How often the file is written: what a killed process has learnt since is lost.
  static constexpr std::chrono::seconds kInterval{15};

  static std::shared_ptr<CacheSaver> make(Options options, std::shared_ptr<Cache> cache, net::EventLoop& loop,
                                          resolve::Process& process);
  ~CacheSaver();
  CacheSaver(const CacheSaver&) = delete;
  CacheSaver& operator=(const CacheSaver&) = delete;

  // --- what an operator drops must not come back with the next process ---
  // Nothing is put into the cache any more that has not been yet.
  void stopLoading();
  bool isLoading() const { return loading_ != nullptr; }
  // When all has been loaded: `then` is called once, on the loop; destroyed uncalled if the saver goes before.
  void whenLoaded(std::function<void()> then) { when_loaded_.push_back(std::move(then)); }
  // Writes what the cache holds now, in place of a file that is being written. `done` is called once, on any thread, when
  // that or what is newer is on the disk, or with the reason why it is not; destroyed uncalled as above. REQUIRES:
  // !isLoading(), or the file would lose what is not loaded yet.
  using Written = std::function<void(const Result<void>&)>;
  void rewrite(Written done);
  // Leaves the file as it is for a while: what it is being written with is no longer true, and another saver writes it.
  // Returns who waits for it.
  std::vector<Written> yieldFile();

  // All at once, for a process that is about to end; `done` when it is on the disk or has failed.
  void saveAll(const std::shared_ptr<std::promise<void>>& done);
  net::EventLoop& loop() const { return loop_; }
  const std::string& file() const { return options_.file; }

 private:
  struct Loading;
  struct Saving;
  CacheSaver(Options options, std::shared_ptr<Cache> cache, net::EventLoop& loop, resolve::Process& process);
  void load();
  void onTimer();
  void restoreSome();
  void endLoading();
  void dropSaving();
  void beginSaving();
  void saveSome();
  bool appendSome();
  void commit(const std::shared_ptr<std::promise<void>>& done);

  const Options options_;
  const std::shared_ptr<Cache> cache_;
  net::EventLoop& loop_;
  const std::shared_ptr<CacheSavers> savers_;
  const Logger log_;
  const std::shared_ptr<Executor::Strand> strand_;
  std::shared_ptr<Loading> loading_;  // null: there is nothing to load any more
  std::shared_ptr<Saving> saving_;    // null: between two files
  std::vector<std::function<void()>> when_loaded_;
  std::vector<Written> when_written_;  // the file of saving_
  net::Timer timer_;
};

// All that live, so that the end of the process finds them. Any thread.
class CacheSavers {
 public:
  void add(CacheSaver& saver);
  void remove(const CacheSaver& saver);
  void saveAll(std::chrono::milliseconds budget);
  // On which all that is done with `file` is done: of one cache there are two savers while a reload goes on.
  std::shared_ptr<Executor::Strand> strandOf(const std::string& file, Executor& executor);

 private:
  std::mutex mutex_;  // held while a loop is posted to: a saver that is known has a loop that lives
  std::map<std::string, std::weak_ptr<Executor::Strand>> strands_;  // by file
  std::vector<CacheSaver*> savers_;
};

class SavedCaches final : public resolve::ProcessState {
 public:
  explicit SavedCaches(resolve::Process&) {}
  void save(std::chrono::milliseconds budget) override { savers->saveAll(budget); }

  const std::shared_ptr<CacheSavers> savers = std::make_shared<CacheSavers>();
};

}  // namespace idetcd::resolver
