#include "config/environment.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <glob.h>
#include <memory>
#include <sys/stat.h>
#include <system_error>

#include <fmt/format.h>

namespace idetcd::config {
namespace {

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

tl::unexpected<Error> systemError(int error) { return fail(std::generic_category().message(error)); }

}  // namespace

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
  const std::unique_ptr<std::FILE, FileCloser> file(std::fopen(path.c_str(), "re"));
  if (!file) return systemError(errno);
  struct stat status;
  if (fstat(fileno(file.get()), &status) != 0) return systemError(errno);
  if (S_ISDIR(status.st_mode)) return fail("is a directory");

  std::string text;
  char buffer[16384];
  while (const size_t count = std::fread(buffer, 1, sizeof(buffer), file.get())) {
    if (count > max_bytes - text.size()) return fail(fmt::format("is larger than {} octets", max_bytes));
    text.append(buffer, count);
  }
  if (std::ferror(file.get()) != 0) return systemError(errno);
  return text;
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

}  // namespace idetcd::config
