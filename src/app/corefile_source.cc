#include "app/corefile_source.h"

#include <filesystem>
#include <iostream>
#include <iterator>
#include <system_error>

#include "config/environment.h"

namespace idetcd::app {

namespace {

constexpr const char* kUsualPath = "Corefile";

bool isThere(const char* path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

Result<std::string> readStdin() {
  std::string text(std::istreambuf_iterator<char>(std::cin), {});
  if (std::cin.bad()) return fail("cannot read the Corefile from standard input");
  return text;
}

Result<std::string> readPath(const std::string& path) {
  auto text = config::SystemEnvironment().readFile(path, config::kMaxInputBytes);
  if (!text) return fail(fmt::format("cannot read {}: {}", path, text.error().message));
  return text;
}

}  // namespace

// A file that was there once is not given up for the default: it may be about to be written anew.
CorefileSource::CorefileSource(const Options& options) : path_(options.conf), default_port_(options.port) {
  if (path_.empty() && isThere(kUsualPath)) path_ = kUsualPath;
}

CorefileSource::Reading CorefileSource::read(NamedFiles files) const {
  const config::SystemEnvironment system;
  const Text source = readText();
  const config::RecordingEnvironment environment(system, source.text ? *source.text : source.text.error().message);
  auto plan = source.text ? makePlan(source.name, *source.text, default_port_, files, environment)
                          : tl::unexpected(source.text.error());
  return {.name = source.name,
          .digest = environment.digest(),
          .was_read = source.text.has_value(),
          .plan = std::move(plan)};
}

CorefileSource::Text CorefileSource::readText() const {
  if (path_ == kStdin) return {.name = path_, .text = readStdin()};
  if (!path_.empty()) return {.name = path_, .text = readPath(path_)};
  if (isThere(kUsualPath)) return {.name = kUsualPath, .text = readPath(kUsualPath)};
  return {.name = "default", .text = fmt::format(".:{} {{\n  whoami\n  log\n}}\n", default_port_)};
}

}  // namespace idetcd::app
