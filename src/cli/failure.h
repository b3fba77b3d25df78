// Why a subcommand has no good answer, with the exit code that this means. Plain values.
#pragma once

#include <tl/expected.hpp>

#include "base/std.h"

namespace idetcd::cli {

// Exit codes of all subcommands.
inline constexpr int kGood = 0;
inline constexpr int kNo = 1;      // the answer is "no", or not in time
inline constexpr int kFailed = 2;  // wrong usage, nobody to ask, or nobody who can answer

inline constexpr std::string_view kNoCluster = "the server has no cluster: its Corefile has no idetcd";

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

}  // namespace idetcd::cli
