// Errors of which each is complete, one a line. Each is said once (a snippet may be imported often), and at most kMost.
// One thread.
#pragma once

#include "base/result.h"

namespace idetcd::config {

class Problems {
 public:
  void add(const tl::unexpected<Error>& error) { add(error.value().message); }
  void add(const std::string& message);
  bool empty() const { return messages_.empty(); }
  Result<void> result() const;

 private:
  static constexpr size_t kMost = 100;
  std::vector<std::string> messages_;
};

}  // namespace idetcd::config
