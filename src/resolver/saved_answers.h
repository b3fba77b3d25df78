// What a cache holds, in a file, so that the next process begins with it.
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
#pragma once

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/result.h"
#include "resolver/cache.h"

namespace idetcd::resolver {

// The two clocks at one moment.
struct Clocks {
  BootClock::time_point boot;
  std::chrono::nanoseconds wall;  // since 1970
  static Clocks now();
};

// What the file says of one answer, appended to `bytes`. False: nothing, as it cannot be written as a message. Any
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

}  // namespace idetcd::resolver
