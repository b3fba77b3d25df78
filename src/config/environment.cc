#include "config/environment.h"

#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <glob.h>
#include <iterator>
#include <system_error>

#include "base/file.h"
#include "base/hash.h"

namespace idetcd::config {

std::string SystemEnvironment::variable(std::string_view name) const {
  const char* value = std::getenv(std::string(name).c_str());
  return value != nullptr ? value : "";
}

std::string SystemEnvironment::absolutePath(const std::string& path) const {
  std::error_code error;  // a working directory that was removed: the path stays relative, and opening it says why
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return (error ? std::filesystem::path(path) : absolute).lexically_normal().string();
}

std::vector<std::string> SystemEnvironment::glob(const std::string& pattern) const {
  std::vector<std::string> paths;
  glob_t matches{};
  if (::glob(pattern.c_str(), 0, nullptr, &matches) == 0) {
    paths.assign(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  }
  globfree(&matches);
  return paths;
}

Result<std::string> SystemEnvironment::readFile(const std::string& path, size_t max_bytes) const {
  // `-conf <(program)` names a pipe; but one into which nobody writes must not hold up reloads and the end.
  constexpr std::chrono::seconds kPatience{5};
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.isOpen()) return failWith(errno);
  return readToEnd(file, max_bytes, kPatience);
}

std::string expandVariables(std::string_view text, const Environment& environment) {
  std::string expanded;
  while (!text.empty()) {
    const size_t open = text.find('{');
    expanded.append(text.substr(0, open));
    if (open == std::string_view::npos) break;
    text.remove_prefix(open);

    const std::string_view close = text.starts_with("{$") ? "}" : text.starts_with("{%") ? "%}" : "";
    const size_t end = close.empty() ? std::string_view::npos : text.find(close, 2);
    if (end == std::string_view::npos || end == 2) {  // no reference, no end, or no name
      expanded.push_back('{');
      text.remove_prefix(1);
      continue;
    }
    expanded.append(environment.variable(text.substr(2, end - 2)));
    text.remove_prefix(end + close.size());
  }
  return expanded;
}

RecordingEnvironment::RecordingEnvironment(const Environment& environment, std::string_view corefile)
    : environment_(environment), corefile_digest_(sha512(corefile)) {}

std::string RecordingEnvironment::digest() const {
  return imports_.empty() ? corefile_digest_ : sha512(corefile_digest_ + "\n" + imports_);
}

std::string RecordingEnvironment::variable(std::string_view name) const { return environment_.variable(name); }

std::string RecordingEnvironment::absolutePath(const std::string& path) const {
  return environment_.absolutePath(path);
}

std::vector<std::string> RecordingEnvironment::glob(const std::string& pattern) const {
  std::vector<std::string> paths = environment_.glob(pattern);
  note("pattern", pattern);
  for (const std::string& path : paths) note("match", path);
  return paths;
}

Result<std::string> RecordingEnvironment::readFile(const std::string& path, size_t max_bytes) const {
  auto text = environment_.readFile(path, max_bytes);
  note("file", path);
  if (text) {
    note("sha512", sha512(*text));
  } else {
    note("error", text.error().message);
  }
  return text;
}

// With its length, so that no path looks like two.
void RecordingEnvironment::note(std::string_view what, std::string_view text) const {
  fmt::format_to(std::back_inserter(imports_), "{} {} {}\n", what, text.size(), text);
}

}  // namespace idetcd::config
