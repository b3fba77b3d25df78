#include "config/problems.h"

#include <fmt/ranges.h>

namespace idetcd::config {

void Problems::add(const std::string& message) {
  if (std::ranges::find(messages_, message) != messages_.end()) return;
  if (messages_.size() < kMost) messages_.push_back(message);
}

Result<void> Problems::result() const {
  return empty() ? Result<void>() : fail(fmt::format("{}", fmt::join(messages_, "\n")));
}

}  // namespace idetcd::config
