#include "node/place.h"

#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"

namespace idetcd::node {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxFileBytes = 4096;

bool isPlaceCharacter(char c) {
  return isDigit(c) || (lowerCase(c) >= 'a' && lowerCase(c) <= 'z') || c == '.' || c == '_' || c == ':' || c == '-';
}

// Without space around it.
std::string firstLine(std::string_view text) {
  text = text.substr(0, text.find('\n'));
  constexpr std::string_view kSpace = " \t\r";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin));
}

Result<std::string> readFromFile(const std::string& path) {
  const auto text = readFile(path, kMaxFileBytes);
  if (!text) return fail(fmt::format("{}: {}", path, text.error().message));
  return firstLine(*text);
}

Result<std::string> readVariable(const std::string& name) {
  const char* const value = ::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): nobody changes the environment
  if (value == nullptr) return fail(fmt::format("there is no variable {}", name));
  return firstLine(value);
}

// As much as a place may have, until the end of the output or of the time.
std::string readOutput(const FileDescriptor& output, Clock::time_point end) {
  std::string text;
  while (text.size() <= kMaxPlaceBytes + 1) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    pollfd ready{.fd = output.get(), .events = POLLIN, .revents = 0};
    if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) <= 0) break;
    std::array<char, kMaxPlaceBytes + 2> bytes;
    const ssize_t size = ::read(output.get(), bytes.data(), bytes.size());
    if (size <= 0) break;
    text.append(bytes.data(), static_cast<size_t>(size));
  }
  return text;
}

Result<std::string> askProgram(const std::vector<std::string>& command, const sandbox::ProgramRunner* programs) {
  const auto failed = [&](std::string_view why) { return fail(fmt::format("{}: {}", command.front(), why)); };
  if (programs == nullptr) return failed("programs cannot be run");
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return failWith(errno, "pipe");
  const FileDescriptor output(ends[0]);
  FileDescriptor theirs(ends[1]);
  const Clock::time_point end = Clock::now() + kPlaceProgramTime;
  const auto program = programs->start(command, {}, theirs);
  if (!program) return failed(program.error().message);
  theirs = {};
  const std::string text = readOutput(output, end);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
  pollfd ended{.fd = program->descriptor(), .events = POLLIN, .revents = 0};
  if (::poll(&ended, 1, static_cast<int>(std::max<int64_t>(0, left.count()))) <= 0)
    return failed(fmt::format("has not ended after {} s", kPlaceProgramTime.count()));
  const auto status = program->wait();
  if (!status) return failed(status.error().message);
  if (!WIFEXITED(*status) || WEXITSTATUS(*status) != 0) return failed("has failed");
  return firstLine(text);
}

Result<std::string> readSource(const std::vector<std::string>& source, const sandbox::ProgramRunner* programs) {
  if (source.size() == 2 && source.front() == "file") return readFromFile(source.back());
  if (source.size() == 2 && source.front() == "env") return readVariable(source.back());
  return askProgram(source, programs);
}

}  // namespace

bool isPlace(std::string_view text) {
  if (text.empty() || text.size() > kMaxPlaceBytes || text.front() == '/' || text.back() == '/') return false;
  return text.find("//") == text.npos &&
         std::ranges::all_of(text, [](char c) { return c == '/' || isPlaceCharacter(c); });
}

Result<std::string> readPlace(const std::vector<std::string>& source, const sandbox::ProgramRunner* programs) {
  assert(!source.empty());
  auto place = readSource(source, programs);
  if (place && !isPlace(*place))
    return fail(fmt::format("{}: no place like zone/rack/switch, of letters, digits and '._:-'", source.front()));
  return place;
}

}  // namespace idetcd::node
