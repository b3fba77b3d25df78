#include "cli/text.h"

#include <cmath>
#include <poll.h>
#include <unistd.h>

namespace idetcd::cli {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  return out;
}

std::string_view withoutDot(std::string_view name) {
  if (name.size() > 1 && name.ends_with('.')) name.remove_suffix(1);
  return name;
}

std::string withDot(std::string_view name) {
  std::string text(name);
  if (!text.ends_with('.')) text += '.';
  return text;
}

std::string firstLabel(std::string_view name) { return std::string(name.substr(0, name.find('.'))); }

std::string table(const std::vector<Row>& rows) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string humanSeconds(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  if (seconds < 0) return "-" + humanSeconds(-seconds);
  if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1000);
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  if (seconds > 1e12) return "?";
  const auto whole = static_cast<int64_t>(seconds);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
  return fmt::format("{} d {} h", whole / 86400, whole % 86400 / 3600);
}

std::string roughSeconds(double seconds) {
  if (!std::isfinite(seconds) || std::abs(seconds) > 1e12) return "?";
  const auto whole = static_cast<int64_t>(std::max(seconds, 0.0));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min", whole / 60);
  if (whole < 86400) return fmt::format("{} h", whole / 3600);
  return fmt::format("{} d", whole / 86400);
}

std::string humanLatency(double seconds) {
  if (seconds >= 1) return fmt::format("{:.1f} s", seconds);
  const double milliseconds = seconds * 1000;
  return fmt::format("{:.{}f} ms", milliseconds, milliseconds >= 10 ? 0 : milliseconds >= 1 ? 1 : 3);
}

std::string humanSize(double size) {
  constexpr std::array<std::string_view, 5> kUnits{" ", " Ki", " Mi", " Gi", " Ti"};
  size_t unit = 0;
  while (size >= 1024 && unit + 1 < kUnits.size()) {
    size /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f}{}", size, unit == 0 ? 0 : 1, kUnits[unit]);
}

std::string humanRate(double rate) {
  return fmt::format("{:.{}f}", rate, rate >= 10 || rate == 0 ? 0 : rate >= 1 ? 1 : 2);
}

std::string humanShare(double share) {
  const double percent = share * 100;
  return fmt::format("{:.{}f} %", percent, percent >= 10 || percent == 0 ? 0 : 1);
}

std::optional<std::string> textAt(const nlohmann::json& object, std::string_view key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

std::optional<double> numberAt(const nlohmann::json& object, std::string_view key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

bool flagAt(const nlohmann::json& object, std::string_view key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

const nlohmann::json& arrayAt(const nlohmann::json& object, std::string_view key) {
  static const nlohmann::json none = nlohmann::json::array();  // NOLINT: readability-identifier-naming
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_array() ? *found : none;
}

std::string wholeAt(const nlohmann::json& object, std::string_view key) {
  const auto number = numberAt(object, key);
  return number ? fmt::format("{:.0f}", *number) : "-";
}

std::string secondsAt(const nlohmann::json& object, std::string_view key) {
  const auto number = numberAt(object, key);
  return number ? humanSeconds(*number) : "-";
}

std::string latencyAt(const nlohmann::json& object, std::string_view key) {
  const auto number = numberAt(object, key);
  return number ? humanLatency(*number) : "-";
}

std::vector<std::string> textsAt(const nlohmann::json& object, std::string_view key) {
  std::vector<std::string> texts;
  for (const nlohmann::json& each : arrayAt(object, key)) {
    if (each.is_string()) texts.push_back(each.get<std::string>());
  }
  return texts;
}

std::string toLine(const nlohmann::json& value) {
  return toText(value) + '\n';
}

Result<void> print(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {  // another program has made it so
      pollfd one{fd, POLLOUT, 0};
      ::poll(&one, 1, -1);
    } else if (errno != EINTR) {
      return failWith(errno);
    }
  }
  return {};
}

}  // namespace idetcd::cli
