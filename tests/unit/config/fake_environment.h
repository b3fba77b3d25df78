// An Environment out of two maps; the working directory is /conf.
#pragma once

#include <filesystem>
#include <fnmatch.h>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/environment.h"

namespace idetcd::config {

class FakeEnvironment final : public Environment {
 public:
  std::map<std::string, std::string, std::less<>> variables;
  std::map<std::string, std::string, std::less<>> files;  // by absolute path

  std::string variable(std::string_view name) const override {
    const auto found = variables.find(name);
    return found == variables.end() ? "" : found->second;
  }
  std::string absolutePath(const std::string& path) const override {
    return (std::filesystem::path("/conf") / path).lexically_normal().string();
  }
  std::vector<std::string> glob(const std::string& pattern) const override {
    std::vector<std::string> paths;
    for (const auto& [path, text] : files) {
      if (fnmatch(pattern.c_str(), path.c_str(), FNM_PATHNAME) == 0) paths.push_back(path);
    }
    return paths;
  }
  Result<std::string> readFile(const std::string& path, size_t max_bytes) const override {
    const auto found = files.find(path);
    if (found == files.end()) return fail("No such file or directory");
    if (found->second.size() > max_bytes) return fail("too large");
    if (found->second == "EISDIR") return fail("Is a directory");
    return found->second;
  }
};

}  // namespace idetcd::config
