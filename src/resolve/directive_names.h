// Small numbers that stand for the names of directives, for the whole process: what is counted by the directive that
// has answered is an element of an array. Any thread.
#pragma once

#include "base/std.h"

namespace idetcd::resolve {

using DirectiveId = uint8_t;

class DirectiveNames {
 public:
  static constexpr DirectiveId kServer = 0;  // no directive: the server itself has answered. Its name is empty
  static constexpr size_t kMax = 64;         // ids are below; more names than that get kServer

  DirectiveId idOf(std::string_view name) {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == name) return static_cast<DirectiveId>(i);
    }
    if (names_.size() == kMax) return kServer;
    names_.emplace_back(name);
    return static_cast<DirectiveId>(names_.size() - 1);
  }
  std::vector<std::string> all() const {
    const std::lock_guard lock(mutex_);
    return names_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> names_{""};  // guarded by mutex_
};

}  // namespace idetcd::resolve
