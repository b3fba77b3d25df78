#include "simulation/timeline.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

namespace idetcd::simulation {

void Timeline::add(size_t machine, std::string text) {
  if (!enabled_) return;
  if (lines_.size() == kKept) lines_.pop_front();
  lines_.push_back({time_.now(), machine, std::move(text)});
}

namespace {

// The number of a call, "#12", in a line about it; empty: it is about something else.
std::string_view callOf(std::string_view line) {
  return line.starts_with('#') ? line.substr(0, line.find(' ')) : std::string_view();
}

}  // namespace

std::string Timeline::render(const std::vector<size_t>& machines, size_t most) const {
  std::vector<Line> chosen;
  std::set<std::pair<size_t, std::string_view>> unconnected;  // calls, whose line of being sent is left out
  struct Row {
    size_t calls = 0;
    Time since;
  };
  std::map<size_t, Row> rows;  // of such calls, by machine
  const auto endRow = [&](size_t machine) {
    const auto row = rows.find(machine);
    if (row == rows.end()) return;
    const Row& its = row->second;
    if (its.calls > 1) chosen.push_back({its.since, machine, fmt::format("{} more calls as the next", its.calls - 1)});
    rows.erase(row);
  };
  for (auto line = lines_.rbegin(); line != lines_.rend() && chosen.size() < most; ++line) {
    const size_t machine = line->machine;
    const bool concerns = machines.empty() || std::find(machines.begin(), machines.end(), machine) != machines.end();
    if (!concerns && machine != kEverybody) continue;
    const std::pair call{machine, callOf(line->text)};
    if (unconnected.erase(call) > 0) continue;
    if (line->text.ends_with(kUnconnected)) {
      unconnected.insert(call);
      Row& row = rows[machine];
      row.since = line->time;
      if (++row.calls > 1) continue;
    } else {
      endRow(machine);
    }
    chosen.push_back(*line);
  }
  while (!rows.empty()) endRow(rows.begin()->first);
  std::reverse(chosen.begin(), chosen.end());
  std::stable_sort(chosen.begin(), chosen.end(), [](const Line& a, const Line& b) { return a.time < b.time; });
  std::string text;
  for (const Line& line : chosen) {
    const double seconds = std::chrono::duration<double>(line.time.time_since_epoch()).count();
    const std::string who = line.machine == kEverybody ? "-" : fmt::format("node {}", line.machine);
    text += fmt::format("  {:12.6f}  {:<8}  {}\n", seconds, who, line.text);
  }
  return text;
}

}  // namespace idetcd::simulation
