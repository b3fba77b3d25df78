// What `rewrite` changes: the question for those behind it, and their response. Names are texts as master files have them,
// in lower case, with the trailing dot. No I/O; any thread.
#pragma once

#include "base/result.h"
#include "dns/query.h"
#include "dns/response_rewriter.h"

namespace re2 {
class RE2;
}

namespace idetcd::directive {

// Which names, by `FROM`.
class NameMatch {
 public:
  enum class Kind : uint8_t { kExact, kPrefix, kSuffix, kSubstring, kRegex, kWithin };  // kWithin: FROM, and names below it

  // The error is a text without a place.
  static Result<NameMatch> make(Kind kind, const std::string& from);
  static std::optional<Kind> kindOf(std::string_view word);

  bool matches(const std::string& name) const;

 protected:
  Kind kind_ = Kind::kExact;
  std::string from_;
  std::shared_ptr<const re2::RE2> regex_;  // of kRegex
};

// And what becomes of them. Of a regular expression the whole name, where {N} stands for a group; else what matched.
class NameChange : public NameMatch {
 public:
  static Result<NameChange> make(Kind kind, const std::string& from, const std::string& to);

  // Nothing: the name stays.
  std::optional<std::string> apply(const std::string& name) const;

 private:
  std::string to_;
};

// Of a response. What is not given stays.
struct ResponseRule {
  std::shared_ptr<const NameChange> owners{};  // of all records
  std::shared_ptr<const NameChange> values{};  // names in the data of CNAME, DNAME, MX, NAPTR, NS, PTR, SOA and SRV
  struct Ttl {
    uint32_t least;
    uint32_t most;
  };
  std::optional<Ttl> ttl{};
  struct Rcode {
    dns::Rcode from;
    dns::Rcode to;
  };
  std::optional<Rcode> rcode{};
};

// A line `rewrite`: one of name, type, class and names (which says whose responses are changed).
struct RewriteRule {
  template <typename T>
  struct Change {
    T from;
    T to;
  };
  bool stops = true;
  std::optional<NameChange> name{};
  std::optional<Change<uint16_t>> type{};
  std::optional<uint16_t> from_class{};  // becomes IN
  std::optional<NameMatch> names{};
  bool reverts = false;  // names of the response from the new one, or below it, to the old one
  std::vector<ResponseRule> response{};
};

// The words of a rule, behind `rewrite`. The error is a text without a place.
Result<RewriteRule> parseRewriteRule(std::span<const std::string> words);

// A question on its way through the rules.
struct RewrittenQuestion {
  dns::Name name;
  uint16_t type = 0;
  bool is_name = true;  // else what it became is no name
  std::vector<ResponseRule> response{};  // the last one is applied first
};

// Nothing: no rule matches, or the class is not IN afterwards.
std::optional<RewrittenQuestion> applyRules(std::span<const RewriteRule> rules, const dns::Query& query);

// Behind the question of `query`. Nothing to write (SERVFAIL) if a name gets too long, or becomes none.
dns::RewrittenResponse rewriteResponse(const dns::Query& query, const dns::MessageView& response,
                                       std::span<const ResponseRule> rules);

}  // namespace idetcd::directive
