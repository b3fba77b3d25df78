// Text for terminals: what came over the network with its control characters escaped, tables, sizes and times. Pure.
#pragma once

#include <tl/expected.hpp>

#include "base/json.h"
#include "base/result.h"

namespace idetcd::cli {

// Exit codes of all subcommands.
inline constexpr int kGood = 0;
inline constexpr int kNo = 1;      // the answer is "no", or not in time
inline constexpr int kFailed = 2;  // wrong usage, nobody to ask, or nobody who can answer

inline constexpr std::string_view kNoCluster = "the server has no cluster: its Corefile has no idetcd";

// Tells why a subcommand has no good answer, with the exit code that this means.
struct Failure {
  std::string message;  // one line, without a full stop
  int code = kFailed;
  bool may_pass = false;  // what waits asks again
  int status = 0;         // of HTTP, if the server has refused
};

template <typename T>
using Reply = tl::expected<T, Failure>;

inline tl::unexpected<Failure> failed(std::string message) {
  return tl::unexpected<Failure>(Failure{.message = std::move(message)});
}
inline tl::unexpected<Failure> notYet(std::string message, int code = kNo) {
  return tl::unexpected<Failure>(Failure{.message = std::move(message), .code = code, .may_pass = true});
}

// Writes all but printable ASCII as \xNN: nothing that a stranger has named something moves the cursor.
std::string escaped(std::string_view text);

// A name without the dot at its end, as host names are written. "." stays.
std::string_view withoutDot(std::string_view name);
// And with it.
std::string withDot(std::string_view name);
// Its first label.
std::string firstLabel(std::string_view name);

// Rows of cells, aligned in columns that are two spaces apart. The last column is not filled up.
using Row = std::vector<std::string>;
std::string table(const std::vector<Row>& rows);

// "850 ms", "17.2 s", "3 min 5 s", "2 h 13 min", "5 d 3 h".
std::string humanSeconds(double seconds);
// As much at least, of one unit: "17 s", "2 min", "3 h", "5 d".
std::string roughSeconds(double seconds);
// "0.31 ms", "12 ms", "1.2 s": of a latency.
std::string humanLatency(double seconds);
// "812 ", "3.4 Ki", "1.2 Mi": before a unit.
std::string humanSize(double size);
// "12", "1.5", "0.04": a rate.
std::string humanRate(double rate);
std::string humanShare(double share);  // of 1: "41 %", "0.3 %"

// --- what is missing, or of another type, in an answer is absent ---

std::optional<std::string> textAt(const nlohmann::json& object, std::string_view key);
std::optional<double> numberAt(const nlohmann::json& object, std::string_view key);
bool flagAt(const nlohmann::json& object, std::string_view key);
// An empty array if there is none.
const nlohmann::json& arrayAt(const nlohmann::json& object, std::string_view key);

// A number for people; "-" where there is none.
std::string wholeAt(const nlohmann::json& object, std::string_view key);
std::string secondsAt(const nlohmann::json& object, std::string_view key);
std::string latencyAt(const nlohmann::json& object, std::string_view key);

// Those that are texts.
std::vector<std::string> textsAt(const nlohmann::json& object, std::string_view key);

// One line, whatever bytes it quotes.
std::string toLine(const nlohmann::json& value);

// How a subcommand has ended.
struct CommandResult {
  int code = 0;
  std::string out;
  std::string err;  // without the name of the subcommand in front; lines
};

// Prints all of it, at once. One thread. Where nobody reads SIGPIPE ends the process, as the caller has set it; else an error.
Result<void> print(int fd, std::string_view text);

}  // namespace idetcd::cli
