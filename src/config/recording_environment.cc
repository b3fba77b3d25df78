#include "config/recording_environment.h"

#include <iterator>

#include "base/sha512.h"

namespace idetcd::config {

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
