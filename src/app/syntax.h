// How directives and their options are written, for error messages: what to write instead of what is wrong. Any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace idetcd::app {

// "limit N"; empty: not known. `option` empty: the directive's own line.
std::string_view syntaxOf(std::string_view directive, std::string_view option = {});

// The one of `known` that `word` was probably meant to be; empty: none is near.
std::string_view nearest(std::string_view word, std::span<const std::string_view> known);

// ", did you mean 'limit'?", or ", write one of: endpoint, limit, …" where none is near.
std::string suggestion(std::string_view word, std::span<const std::string_view> known);

// The messages (one a line) with "; write: SYNTAX" behind each that does not say yet what to write.
std::string withSyntax(std::string_view messages, std::string_view syntax);

}  // namespace idetcd::app
