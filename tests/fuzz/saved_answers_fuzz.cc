// The file of answers that outlive the process: any file is refused, or gives answers that the cache can write as whole
// messages, and that a file of these gives back. The input is a file without its hash, which would keep all but one in
// 2^64 of them from being looked at; as it is it is tried, too.
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>

#include "base/hash.h"
#include "fuzz/check.h"
#include "fuzz/memory_file.h"
#include "resolver/cache_saver.h"
#include "unit/dns/message.h"

namespace {

using namespace idetcd;
using namespace std::chrono_literals;

constexpr HashSeed kSeed = 1;
const resolver::Clocks kClocks{BootClock::time_point(1000000s), 1700000000s};
constexpr size_t kMaxBytes = size_t{1} << 20U;
constexpr size_t kStep = 3;  // answers
constexpr std::string_view kRules = "private";
constexpr size_t kHeadSize = 16;

// Name, type and flags of a question, and what the file says of its answer.
using Question = std::tuple<std::string, uint16_t, uint8_t>;
using Answers = std::map<Question, std::string>;

resolver::Cache::Options options() {
  resolver::Cache::Options options;
  options.serve_stale = 24h;
  return options;
}

// All that is in the cache, as it is to be written.
Answers answersOf(resolver::Cache& cache) {
  Answers all;
  cache.beginWalk();
  const auto visit = [&all](const resolver::Cache::Kept& kept) {
    std::string bytes;
    if (!resolver::appendAnswer(kept, kClocks, bytes)) return;
    FUZZ_CHECK(bytes.size() > kHeadSize && kept.came_at <= kClocks.boot);
    const auto* message = reinterpret_cast<const uint8_t*>(bytes.data()) + kHeadSize;
    FUZZ_CHECK(dns::test::MessageReader::read({message, bytes.size() - kHeadSize}).has_value());
    all[{std::string(kept.name.begin(), kept.name.end()), kept.qtype, kept.key_flags}] = bytes;
  };
  while (cache.walk(kStep, visit)) {
  }
  return all;
}

// Nothing: the file was refused.
Answers load(std::string_view contents) {
  static const fuzz::MemoryFile file;
  file.assign(contents);
  auto reader = resolver::AnswersReader::open(file.path(), kRules, kMaxBytes);
  if (!reader) {
    FUZZ_CHECK(!reader.error().message.empty());
    return {};
  }
  resolver::Cache cache(options());
  size_t steps = 0;
  while (reader->restore(cache, kSeed, kClocks, kStep)) FUZZ_CHECK(++steps <= contents.size());
  return answersOf(cache);
}

void append(std::string& bytes, uint64_t number, size_t size) {
  bytes.append(reinterpret_cast<const char*>(&number), size);
}

void appendHash(std::string& bytes) { append(bytes, XXH3_64bits(bytes.data(), bytes.size()), sizeof(uint64_t)); }

std::string fileOf(const Answers& answers) {
  std::string bytes = "idetcdA2";
  append(bytes, XXH3_64bits(kRules.data(), kRules.size()), sizeof(uint64_t));
  for (const auto& [question, answer] : answers) bytes += answer;
  append(bytes, 0, sizeof(uint32_t));
  append(bytes, answers.size(), sizeof(uint64_t));
  appendHash(bytes);
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string contents(reinterpret_cast<const char*>(data), size);
  load(contents);
  appendHash(contents);
  const Answers answers = load(contents);
  const std::string file = fileOf(answers);
  if (file.size() < kMaxBytes) FUZZ_CHECK(load(file) == answers);
  return 0;
}
