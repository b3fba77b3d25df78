#include "config/token_stream.h"

#include <filesystem>

#include "config/corefile.h"
#include "config/lexer.h"

namespace idetcd::config {

Result<void> TokenStream::push(std::string_view file, std::string_view text) {
  last_.file = std::make_shared<const std::string>(file);
  last_.line = 1;
  Result<Tokens> tokens = readTokens(std::string(file), text);
  if (!tokens) return tl::unexpected(tokens.error());
  return pushSource(environment_.absolutePath(std::string(file)), std::move(*tokens));
}

const Token* TokenStream::peek() {
  // A source is left only when something behind it is asked for: until then an import at its very end still counts as
  // inside it, and a cycle through it is seen.
  while (!sources_.empty() && sources_.back().next == sources_.back().tokens->size()) sources_.pop_back();
  return sources_.empty() ? nullptr : &(*sources_.back().tokens)[sources_.back().next];
}

Token TokenStream::take() {
  const Token* next = peek();
  assert(next != nullptr);
  last_ = *next;
  ++sources_.back().next;
  return last_;
}

Result<void> TokenStream::defineSnippet(const Token& place, std::string name, std::vector<Token> body) {
  if (!body.empty()) body.front().starts_line = true;
  auto tokens = std::make_shared<const std::vector<Token>>(std::move(body));
  if (!snippets_.emplace(name, std::move(tokens)).second) {
    return errorAt(place, fmt::format("redeclaration of previously declared snippet {}", name));
  }
  return {};
}

Result<void> TokenStream::import() {
  const Result<std::string> argument = importArgument();
  if (!argument) return tl::unexpected(argument.error());
  const auto snippet = snippets_.find(*argument);
  if (snippet == snippets_.end()) return importFiles(*argument);
  return pushSource(fmt::format("({})", *argument), snippet->second);
}

Result<std::string> TokenStream::importArgument() {
  assert(!sources_.empty());
  const Source& source = sources_.back();
  const std::vector<Token>& tokens = *source.tokens;
  // Whatever follows the argument must begin a line: so the imported text is a sequence of whole lines.
  const auto argument_at = [&](size_t i) { return i < tokens.size() && !tokens[i].starts_line; };
  if (!argument_at(source.next)) {
    return errorAt(last_, "Wrong argument count or unexpected line ending after 'import'");
  }
  const std::string argument = expandVariables(take().text, environment_);
  if (argument.empty()) return errorAt(last_, "Import requires a non-empty filepath");
  if (argument_at(source.next)) {
    return errorAt(last_, "Import takes only one argument (glob pattern or file)");
  }
  return argument;
}

Result<void> TokenStream::importFiles(const std::string& pattern) {
  const std::filesystem::path directory = std::filesystem::path(environment_.absolutePath(*last_.file)).parent_path();
  const std::string path = (directory / pattern).lexically_normal().string();
  // Each wild card multiplies the work of matching.
  const bool has_class = path.find('[') != std::string::npos && path.find(']') != std::string::npos;
  if (has_class || std::count(path.begin(), path.end(), '*') > 1 || std::count(path.begin(), path.end(), '?') > 1) {
    return errorAt(last_, fmt::format("Glob pattern may only contain one wildcard (*), but has others: {}", path));
  }
  const std::vector<std::string> matches = environment_.glob(path);
  if (matches.empty()) {
    if (path.find_first_of("*?[]") == std::string::npos) {
      auto error = errorAt(last_, fmt::format("File to import not found: {}", pattern));
      error.value().code = ErrorCode::kNotFound;
      return error;
    }
    warnings_.push_back(fmt::format("No files matching import glob pattern: {}", pattern));
  }

  auto together = std::make_shared<std::vector<Token>>();
  const Token place = last_;
  for (const std::string& match : matches) {
    auto file = files_.find(match);
    if (file == files_.end()) {
      const Result<std::string> text = environment_.readFile(match, kMaxInputBytes);
      if (!text) return errorAt(place, fmt::format("Could not import {}: {}", match, text.error().message));
      Result<Tokens> tokens = readTokens(match, *text);
      if (!tokens) return tl::unexpected(tokens.error());
      file = files_.emplace(match, std::move(*tokens)).first;
    }
    if (matches.size() == 1) return pushSource(match, file->second);
    together->insert(together->end(), file->second->begin(), file->second->end());
  }
  return pushSource(path, std::move(together));
}

Result<void> TokenStream::pushSource(std::string name, Tokens tokens) {
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (sources_[i].name != name) continue;
    std::string cycle;
    for (; i < sources_.size(); ++i) cycle += sources_[i].name + " -> ";
    return errorAt(last_, fmt::format("Import cycle: {}{}", cycle, name));
  }
  if (sources_.size() > kMaxImportDepth) {
    return errorAt(last_, fmt::format("maximum import depth ({}) exceeded", kMaxImportDepth));
  }
  if (imports_++ > kMaxImports) {  // the first source is no import
    return errorAt(last_, fmt::format("more than {} imports", kMaxImports));
  }
  if (tokens->size() > kMaxTokens - tokens_) return errorAt(last_, fmt::format("more than {} tokens", kMaxTokens));
  tokens_ += tokens->size();
  sources_.push_back(Source{std::move(name), std::move(tokens), 0});
  return {};
}

Result<TokenStream::Tokens> TokenStream::readTokens(const std::string& shown_file, std::string_view text) {
  if (text.size() > kMaxInputBytes - bytes_read_) {
    return errorAt(last_, fmt::format("{}: more than {} bytes in all", shown_file, kMaxInputBytes));
  }
  bytes_read_ += text.size();
  Result<std::vector<Token>> tokens = tokenize(shown_file, text);
  if (!tokens) return tl::unexpected(tokens.error());
  return std::make_shared<const std::vector<Token>>(std::move(*tokens));
}

}  // namespace idetcd::config
