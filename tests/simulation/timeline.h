// What happened, for people: kept only when somebody will read it, and of the last events alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "simulation/virtual_time.h"

namespace idetcd::simulation {

class Timeline {
 public:
  // The end of a line about a call that was not sent, since nobody could be connected to.
  static constexpr std::string_view kUnconnected = "failed to connect to all addresses";
  static constexpr size_t kEverybody = SIZE_MAX;  // in place of a machine: the world, etcd, an operator

  Timeline(const VirtualTime& time, bool enabled) : time_(time), enabled_(enabled) {}

  bool enabled() const { return enabled_; }
  template <typename... Args>
  void say(size_t machine, fmt::format_string<Args...> format, Args&&... args) {
    if (enabled_) add(machine, fmt::format(format, std::forward<Args>(args)...));
  }
  void add(size_t machine, std::string text);
  // The last lines about these machines, or about everybody. Of calls in a row that found nobody to connect to, there is
  // one line.
  std::string render(const std::vector<size_t>& machines, size_t most) const;

 private:
  static constexpr size_t kKept = 20'000;
  struct Line {
    Time time;
    size_t machine;
    std::string text;
  };

  const VirtualTime& time_;
  const bool enabled_;
  std::deque<Line> lines_;
};

}  // namespace idetcd::simulation
