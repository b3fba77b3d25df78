// Result<T>: a value, or an Error that says in one English sentence fragment what is wrong (lower case, no full stop,
// no prefix; the caller adds where). For failures that a caller reports; a bad packet is not one: see dns/message.h.
#pragma once

#include <string>
#include <utility>

#include <tl/expected.hpp>

namespace idetcd {

struct Error {
  std::string message;
};

template <typename T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(std::string message) { return tl::unexpected<Error>(Error{std::move(message)}); }

}  // namespace idetcd
