// The part of Go's text/template that `template` has: text, {{ pipelines }}, {{ if }}, {{ else if }}, {{ else }}, {{ end }}, comments
// and trimmed blanks; strings, whole numbers, true, false; the fields of TemplateData; and the functions and, eq, ge, gt,
// index, le, len, lt, ne, not, or, parseInt, print, printf. What else Go has is refused by name. Parsed once; expanded
// often, on any thread.
#pragma once

#include <map>
#include <variant>

#include "base/result.h"

namespace idetcd::directive {

// What a template is expanded for.
struct TemplateData {
  std::string zone{};  // the template's, that the name is in
  std::string name{};  // in lower case, with the trailing dot
  std::string rr_class{};
  std::string type{};
  std::string remote{};  // the client's address
  std::vector<std::string> match{};  // the whole match, and the groups
  std::map<std::string, std::string, std::less<>> group{};  // by name, and by number
  struct Question {
    std::string name{};  // as the client wrote it
    int64_t type = 0;
    int64_t rr_class = 0;
  } question{};
};

class GoTemplate {
 public:
  // The error is a text without a place.
  static Result<GoTemplate> parse(std::string_view text);
  GoTemplate(GoTemplate&&) noexcept;
  GoTemplate& operator=(GoTemplate&&) noexcept;
  ~GoTemplate();

  // The error: a value was not what a function needs.
  Result<std::string> expand(const TemplateData& data) const;
  // Whether it is text only, which every expansion is.
  bool isConstant() const;
  // The names in .Group.NAME and index .Group "NAME", and the numbers in index .Match NUMBER.
  const std::vector<std::string>& groups() const { return groups_; }

  struct Node;

 private:
  GoTemplate(std::vector<Node> nodes, std::vector<std::string> groups);

  std::vector<Node> nodes_;
  std::vector<std::string> groups_;
};

}  // namespace idetcd::directive
